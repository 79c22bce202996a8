package runonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// reasonSyncError is the reason of an error that has none.
const reasonSyncError = "SyncError"

// failed is the condition of a pod that runonce gives up.
func failed(reason, message string) condition {
	return condition{outcome: Failed, ended: true, reason: reason, message: message}
}

// handle handles the result of the last Sync or Status: it gives up or plans a retry.
func (p *pod) handle(ctx context.Context, err error) {
	now := time.Now()
	after := failure.RetryAfter(err)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		p.resetRetries()
	case failure.IsPermanent(err):
		p.preemptor = preemptedBy(err)
		p.end(ctx, failed(failure.Reason(err, reasonSyncError), err.Error()))
	case after > 0:
		p.retryAt = now.Add(after)
	case now.Before(p.retryAt):
		// An event came early; the planned retry is still due.
	default:
		p.planRetry(ctx, err, now)
	}
}

// planRetry uses the next delay of the schedule, and gives up when there is none left.
func (p *pod) planRetry(ctx context.Context, err error, now time.Time) {
	delay, ok := p.r.o.Retry.At(p.streak)
	if limit, limited := retryLimit(err); !ok || (limited && p.streak >= limit) {
		p.end(ctx, failed(failure.Reason(err, reasonSyncError), fmt.Sprintf("%s (gave up after %d retries)", err, p.streak)))
		return
	}
	p.retries++
	p.streak++
	p.retryAt = now.Add(delay)
	p.r.progress(Progress{Pod: p.pod, State: "Retrying", Message: err.Error(), RetryAt: p.retryAt}, 0)
}

// resetRetries restarts the schedule for the next error.
func (p *pod) resetRetries() { p.streak, p.retryAt = 0, time.Time{} }

// crashLoop gives up when a container has crashed after as many restarts in this run as there
// are retries, or as its Job allows.
func (p *pod) crashLoop(ctx context.Context) bool {
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
		if int(cs.RestartCount)-p.earlierRestarts[cs.Name] < limit {
			continue
		}
		p.end(ctx, failed("CrashLoopBackOff", fmt.Sprintf("container %q %s; gave up after %d restarts%s", cs.Name, ending(t), limit, probeMessage(p.status))))
		return true
	}
	return false
}

// restarts is how often containers of the pod were restarted in this run.
func (p *pod) restarts() int {
	n := 0
	for _, cs := range podspec.Statuses(p.status) {
		n += max(0, int(cs.RestartCount)-p.earlierRestarts[cs.Name])
	}
	return n
}

// preemptedBy returns the pod that the error names as the preemptor, nil for none.
func preemptedBy(err error) *v1.Pod {
	var p interface{ PreemptedBy() *v1.Pod }
	if errors.As(err, &p) {
		return p.PreemptedBy()
	}
	return nil
}

// retryLimit returns the number of retries that the error allows, if it limits it.
func retryLimit(err error) (int, bool) {
	var r interface{ Retries() int }
	if errors.As(err, &r) {
		return r.Retries(), true
	}
	return 0, false
}
