package runonce

import (
	"context"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// reasonCrashLoop is the kubelet's for a container that waits since it has crashed, and ours for its pod.
const reasonCrashLoop = "CrashLoopBackOff"

// handle handles the result of the last Sync or Status: it gives up or plans a retry.
func (p *pod) handle(ctx context.Context, err error) {
	now := time.Now()
	after := failure.RetryAfter(err)
	switch {
	case ctx.Err() != nil:
	case failure.IsPermanent(err):
		p.preemptor = preemptedBy(err)
		c := failed(failure.Reason(err, reasonSyncError), failure.WithAdvice(err).Error())
		if isRejected(err) {
			c.outcome = Rejected
		}
		p.end(ctx, c)
		if !isStoppedByOther(err) {
			p.due = now.Add(reviveInterval)
		}
	case p.stage == replacing && now.Before(p.due):
		// It has failed meanwhile, and starts again when the pause is over.
	case err == nil:
		p.resetRetries()
	case after > 0:
		p.due = now.Add(after)
	case now.Before(p.due):
		// An event came early; the planned retry is still due.
	default:
		p.planRetry(ctx, err, now)
	}
}

// planRetry uses the next delay of the schedule, and gives up when there is none left.
func (p *pod) planRetry(ctx context.Context, err error, now time.Time) {
	delay, ok := p.r.o.Retry.Next(p.streak, err)
	if !ok {
		p.end(ctx, failed(failure.Reason(err, reasonSyncError), fmt.Sprintf("%s (gave up after %d retries)", failure.WithAdvice(err), p.streak)))
		p.due = now.Add(reviveInterval)
		return
	}
	p.retries++
	p.streak++
	p.retryAt(now.Add(delay), err.Error())
}

// resetRetries restarts the schedule for the next error.
func (p *pod) resetRetries() { p.streak, p.due = 0, time.Time{} }

// limitRestarts tells the runtime how often it may restart the containers of the pod: so often that
// crashLoop gives the pod up after one more end.
func (p *pod) limitRestarts() {
	rt, ok := p.r.rt.(Limiter)
	if !ok {
		return
	}
	most := map[string]int{}
	switch limit := *p.r.o.MaxRestarts; {
	case p.member != nil:
		left, statuses := p.member.job.restartsLeft(p.pod.UID, p.status), podspec.Statuses(p.status)
		for _, c := range podspec.Containers(p.pod) {
			most[c.Name] = int(statusOf(statuses, c.Name).RestartCount) + left
		}
	case limit < math.MaxInt:
		for _, c := range podspec.Containers(p.pod) {
			most[c.Name] = p.history[c.Name].ended + limit
		}
	}
	rt.LimitRestarts(p.pod, most)
}

// crashed says whether the last end of the container is followed by another instance.
func (p *pod) crashed(cs v1.ContainerStatus) bool {
	t, c := podspec.LastTermination(cs), podspec.Container(p.pod, cs.Name)
	if t == nil || c == nil {
		return false
	}
	// One that a probe has failed is restarted whatever it has exited with then.
	waits := cs.State.Waiting != nil && cs.State.Waiting.Reason == reasonCrashLoop
	return waits || podspec.Restarts(p.pod, c, t)
}

// crashLoop gives up when a container has crashed more often in this run than it may be
// restarted. How often the containers of a Job's pods are restarted is up to the Job, which ends them.
func (p *pod) crashLoop(ctx context.Context) bool {
	limit := *p.r.o.MaxRestarts
	for _, cs := range podspec.Statuses(p.status) {
		switch {
		case !p.crashed(cs):
		case p.member != nil:
			if isDown(cs) && !p.member.job.mayRestart(p.pod.UID, p.status) {
				return true
			}
		case p.history.crashes(cs) > limit:
			end := ending(podspec.LastTermination(cs))
			p.end(ctx, failed(reasonCrashLoop, fmt.Sprintf("container %q %s; gave up after %s%s", cs.Name, end, Count(limit, "restart"), probeMessage(p.status))))
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
