package runonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// poll is how often a pod is looked at though no event came: an engine that was
// restarted may have lost some.
const poll = 10 * time.Second

// pod is one pod on its way to its goal. Only one goroutine at a time works on it.
type pod struct {
	r       *run
	pod     *v1.Pod
	res     *Result
	rank    int
	slot    *waiter // for its next Sync; nil when it does not queue
	changes <-chan struct{}

	kept     bool           // it runs from an earlier run
	begun    bool           // Sync was called in this run
	status   v1.PodStatus   // as last seen
	cond     condition      // of that status, or of what failed
	err      error          // of the last Sync
	by       *v1.Pod        // has preempted it, in another run
	restarts map[string]int // of each container, before this run
	retries  int            // after an error
	streak   int            // retries since something went well
	retryAt  time.Time      // when the next try is due, zero when none is

	jobMember
}

// there says whether the pod is at its goal or at its end.
func (p *pod) there() bool { return p.cond.outcome != "" }

// started says whether the pod runs or has run, in this run or in an earlier one.
func (p *pod) started() bool { return p.begun || p.kept }

// subscribe asks to be woken by changes of the pod. Without events there is still poll.
func (p *pod) subscribe(ctx context.Context) {
	changes, err := p.r.rt.Changes(ctx, p.pod)
	if err != nil {
		p.r.o.Logger.WarnContext(ctx, "no events of the pod", "pod", p.name(), "error", err)
		return
	}
	p.changes = changes
}

func (p *pod) name() string { return p.pod.Namespace + "/" + p.pod.Name }

// drive works on the pod until its outcome stands, or all pods are at their goal, or ctx
// is done. A pod at its goal goes on being watched and healed.
func (p *pod) drive(ctx context.Context, all *barrier) {
	for ctx.Err() == nil && !p.cond.ended {
		if !p.awaitTurn(ctx) {
			return
		}
		p.converge(ctx)
		if ctx.Err() != nil && !p.cond.ended {
			return
		}
		// When a pod leaves after all were there, the look at all pods that follows sees it.
		if !all.set(p, p.there()) || p.cond.ended || !p.wait(ctx, all.full) {
			return
		}
	}
}

// converge looks at the pod, syncs it unless it is where it should be, and looks again.
func (p *pod) converge(ctx context.Context) {
	if p.jobOver() {
		p.failWithJob(ctx)
		return
	}
	if p.started() && !p.needsSync(ctx) {
		return
	}
	if p.sync(ctx) && !p.there() {
		p.handle(ctx, p.err)
	}
}

// needsSync looks at a pod that was started and says whether it is to be synced now.
func (p *pod) needsSync(ctx context.Context) bool {
	before := p.status
	if err := p.look(ctx); err != nil {
		p.handle(ctx, err)
		return false
	}
	switch {
	case p.cond.ended:
		return false
	case p.toBeRetried():
		return !time.Now().Before(p.due)
	case !p.begun:
		return true // a pod of an earlier run is synced once in any case
	case p.there() || p.cond.again > 0:
		p.resetRetries()
		return hasUnready(p.status)
	case p.crashLoop(ctx):
		return false
	}
	return !time.Now().Before(p.retryAt) || !reflect.DeepEqual(before, p.status)
}

// hasUnready says whether a container runs that is not ready. Its liveness or startup probe
// may ask for a restart, and Sync knows; so a run that only waits for it to run syncs it, too.
func hasUnready(st v1.PodStatus) bool {
	return slices.ContainsFunc(podspec.Statuses(st), func(cs v1.ContainerStatus) bool {
		return cs.State.Running != nil && !cs.Ready
	})
}

// sync works on the pod in a slot and reports whether there is a new status or error to
// act on.
func (p *pod) sync(ctx context.Context) bool {
	if p.slot == nil {
		p.slot = p.r.slots.reserve(p.rank)
	}
	err := p.r.slots.acquire(ctx, p.slot)
	p.slot = nil
	if err != nil {
		return false
	}
	defer p.r.slots.release()
	if !p.begun {
		p.begun = true
		p.job.begin()
		p.r.progress(p.pod, "Starting", "", 0)
	}
	if err = p.clearFailed(ctx); err == nil {
		err = p.r.rt.Sync(ctx, p.pod)
	}
	if ctx.Err() != nil {
		return false // what was cut off says nothing about the pod
	}
	p.err = err
	if err := p.look(ctx); err != nil {
		p.err = errors.Join(p.err, err)
	}
	return true
}

// look takes the pod's status and judges it.
func (p *pod) look(ctx context.Context) error {
	if err := p.refresh(ctx); err != nil {
		p.become(condition{reason: "StatusUnknown", message: err.Error()})
		return err
	}
	if p.toBeRetried() {
		return nil
	}
	c := p.r.goal.judge(p.pod, p.status, time.Now())
	if c.ended {
		c = p.retryInJob(ctx, c)
	}
	if c.ended {
		p.end(ctx, c)
	} else {
		p.become(c)
	}
	return nil
}

// refresh takes the pod's status.
func (p *pod) refresh(ctx context.Context) error {
	st, err := p.r.rt.Status(ctx, p.pod)
	if err != nil {
		return fmt.Errorf("looking at pod %q: %w", p.pod.Name, err)
	}
	if p.restarts == nil {
		p.restarts = map[string]int{}
		if p.kept {
			for _, cs := range podspec.Statuses(st) {
				p.restarts[cs.Name] = int(cs.RestartCount)
			}
		}
	}
	p.setStatus(st)
	return nil
}

// setStatus keeps the status. A pod that has ended lets go of its addresses, now or a moment
// later, but whoever asks wants to know which it had.
func (p *pod) setStatus(st v1.PodStatus) {
	if st.PodIP == "" {
		st.PodIP, st.PodIPs = p.status.PodIP, p.status.PodIPs
	}
	p.status = st
}

// become notes where the pod has come to, and reports what is new.
func (p *pod) become(c condition) {
	old, was := p.cond, p.there()
	p.cond = c
	step := 0
	switch at := p.there(); {
	case at && !was:
		step = 1
		p.res.Elapsed = p.r.since()
	case !at && was:
		step = -1
	}
	if old.reason != c.reason || old.outcome != c.outcome {
		p.r.progress(p.pod, cmp.Or(string(c.outcome), "Waiting"), c.message, step)
	}
}

// wait returns true when there is reason to look at the pod again, and false when all
// pods are at their goal.
func (p *pod) wait(ctx context.Context, full <-chan struct{}) bool {
	timer := time.NewTimer(p.nextLook(time.Now()))
	defer timer.Stop()
	for {
		select {
		case _, open := <-p.changes:
			if open {
				return true
			}
			p.changes = nil
		case <-timer.C:
			return true
		case <-p.job.done():
			return true
		case <-full:
			return false
		case <-ctx.Done():
			return true
		}
	}
}

// nextLook is how long a pod may go unwatched.
func (p *pod) nextLook(now time.Time) time.Duration {
	d := poll
	if p.cond.again > 0 {
		d = min(d, p.cond.again)
	}
	for _, at := range []time.Time{p.retryAt, p.due} {
		if due := at.Sub(now); due > 0 {
			d = min(d, due)
		}
	}
	return d
}
