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
		c := failed(failure.Reason(err, reasonSyncError), failure.WithAdvice(err).Error())
		if isRejected(err) {
			c.outcome = Rejected
		}
		if !isTaken(err) {
			p.gaveUp = now
		}
		p.end(ctx, c)
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
	delay, ok := p.r.o.Retry.Next(p.streak, err)
	if !ok {
		p.gaveUp = now
		p.end(ctx, failed(failure.Reason(err, reasonSyncError), fmt.Sprintf("%s (gave up after %d retries)", failure.WithAdvice(err), p.streak)))
		return
	}
	p.retries++
	p.streak++
	p.retryAt = now.Add(delay)
	p.r.progress(Progress{Pod: p.pod, State: "Retrying", Message: err.Error(), RetryAt: p.retryAt}, 0)
}

// resetRetries restarts the schedule for the next error.
func (p *pod) resetRetries() { p.streak, p.retryAt = 0, time.Time{} }

// crashLoop gives up when a container has crashed more often in this run than it may be
// restarted. How often the containers of a Job's pods are restarted is up to the Job.
func (p *pod) crashLoop(ctx context.Context) bool {
	limit := *p.r.o.MaxRestarts
	for _, cs := range podspec.Statuses(p.status) {
		t, c := podspec.LastTermination(cs), podspec.Container(p.pod, cs.Name)
		if t == nil || c == nil || !podspec.Restarts(p.pod, c, t.ExitCode) {
			continue
		}
		if p.job != nil {
			if isDown(cs) && p.tooManyRestarts(ctx) {
				return true
			}
			continue
		}
		if p.history.crashes(cs) > limit {
			p.end(ctx, failed("CrashLoopBackOff", fmt.Sprintf("container %q %s; gave up after %s%s", cs.Name, ending(t), Count(limit, "restart"), probeMessage(p.status))))
			return true
		}
	}
	return false
}

// Count returns "1 pod", "2 pods".
func Count(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

// isRejected reports whether the error says that the pod was not accepted.
func isRejected(err error) bool {
	var r interface{ Rejected() bool }
	return errors.As(err, &r) && r.Rejected()
}

// isTaken reports whether the error says that another process has stopped the pod.
func isTaken(err error) bool {
	var p interface{ PreemptedBy() *v1.Pod }
	return errors.As(err, &p)
}

// preemptedBy returns the pod that the error names as the preemptor, nil for none.
func preemptedBy(err error) *v1.Pod {
	var p interface{ PreemptedBy() *v1.Pod }
	if errors.As(err, &p) {
		return p.PreemptedBy()
	}
	return nil
}
