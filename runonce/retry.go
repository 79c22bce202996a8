package runonce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// end makes the outcome stand.
func (p *pod) end(ctx context.Context, c condition) {
	p.resetRetries()
	p.job.leave(p.pod.UID, c.outcome == Succeeded)
	p.become(c)
	if p.status.Phase != v1.PodSucceeded && p.status.Phase != v1.PodFailed || !p.begun {
		return
	}
	// A pod that has ended needs its namespaces and addresses no longer; Sync lets go
	// of them.
	err := p.r.rt.Sync(ctx, p.pod)
	if p.by = preemptor(err); p.by == nil && err != nil {
		p.r.o.Logger.WarnContext(ctx, "ended pod keeps something of its own", "pod", p.name(), "error", err)
	}
	p.lookBack(ctx)
}

// lookBack takes the status of an ended pod once more when containers ran on until its
// end: sidecars, or what was past its deadline. They have been stopped since.
func (p *pod) lookBack(ctx context.Context) {
	runs := func(cs v1.ContainerStatus) bool { return cs.State.Running != nil }
	if !slices.ContainsFunc(podspec.Statuses(p.status), runs) {
		return
	}
	if st, err := p.r.rt.Status(ctx, p.pod); err == nil && st.Phase == p.status.Phase {
		p.setStatus(st)
	}
}

// failed is the condition of a pod that is given up.
func failed(reason, message string) condition {
	return condition{outcome: Failed, ended: true, reason: reason, message: message}
}

// handle acts on what the last Sync or Status returned: it gives up or plans the next try.
func (p *pod) handle(ctx context.Context, err error) {
	now := time.Now()
	after := failure.RetryAfter(err)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		p.resetRetries()
	case failure.IsPermanent(err):
		p.by = preemptor(err)
		p.end(ctx, failed(reasonOf(err), err.Error()))
	case after > 0:
		p.retryAt = now.Add(after)
	case now.Before(p.retryAt):
		// A change woke us early; the retry that was planned is still due.
	default:
		p.planRetry(ctx, err, now)
	}
}

// planRetry takes the next delay of the schedule, and gives up when there is none left.
func (p *pod) planRetry(ctx context.Context, err error, now time.Time) {
	delay, ok := p.r.o.Retry.At(p.streak)
	if most, bounded := worthRetries(err); !ok || (bounded && p.streak >= most) {
		p.end(ctx, failed(reasonOf(err), fmt.Sprintf("%s (gave up after %d retries)", err, p.streak)))
		return
	}
	p.retries++
	p.streak++
	p.retryAt = now.Add(delay)
	p.r.progress(p.pod, "Retrying", fmt.Sprintf("in %s: %s", delay, err), 0)
	p.r.o.Logger.DebugContext(ctx, "retrying", "pod", p.name(), "delay", delay, "error", err)
}

// resetRetries begins the schedule again for the next error.
func (p *pod) resetRetries() { p.streak, p.retryAt = 0, time.Time{} }

// crashLoop gives up when a container is down again after as many restarts in this run
// as there are retries, or as its Job allows.
func (p *pod) crashLoop(ctx context.Context) bool {
	if !p.begun {
		return false
	}
	limit := p.r.o.Retry.Retries
	for _, cs := range podspec.Statuses(p.status) {
		t := podspec.LastTermination(cs)
		if cs.State.Running != nil || t == nil {
			continue
		}
		if c := podspec.Container(p.pod, cs.Name); c == nil || !podspec.Restarts(p.pod, c, t.ExitCode) {
			continue
		}
		if p.tooManyRestarts(ctx) {
			return true
		}
		if int(cs.RestartCount)-p.restarts[cs.Name] < limit {
			continue
		}
		p.end(ctx, failed("CrashLoopBackOff", fmt.Sprintf("container %q %s; gave up after %d restarts%s", cs.Name, ending(t), limit, probeMessage(p.status))))
		return true
	}
	return false
}

// restarted is how often containers of the pod were restarted in this run.
func (p *pod) restarted() int {
	n := 0
	for _, cs := range podspec.Statuses(p.status) {
		n += max(0, int(cs.RestartCount)-p.restarts[cs.Name])
	}
	return n
}

// preemptor returns the pod that the error says has preempted this one, nil for none.
func preemptor(err error) *v1.Pod {
	var p interface{ PreemptedBy() *v1.Pod }
	if errors.As(err, &p) {
		return p.PreemptedBy()
	}
	return nil
}

// worthRetries returns how many retries the error says make sense at most, if it does.
func worthRetries(err error) (int, bool) {
	var r interface{ Retries() int }
	if errors.As(err, &r) {
		return r.Retries(), true
	}
	return 0, false
}

// reasonOf returns the reason that the error carries, a single word.
func reasonOf(err error) string { return failure.Reason(err, "SyncError") }
