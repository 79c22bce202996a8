package runonce

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce/goal"
)

// poll is how often a pod is looked at though no event came: an engine that was
// restarted may have lost some.
const poll = 10 * time.Second

// pod is one pod on its way to its goal. Only one goroutine at a time works on it.
type pod struct {
	r       *run
	pod     *v1.Pod
	kept    bool // it runs from an earlier run
	res     *Result
	rank    int
	ticket  *ticket
	changes <-chan struct{}

	begun    bool           // Sync was called
	over     bool           // the outcome stands
	there    bool           // counted as being at its goal
	status   v1.PodStatus   // as last seen
	view     goal.View      // of that status
	err      error          // of the last Sync
	by       *v1.Pod        // has preempted it, in another run
	retries  int            // after an error
	row      int            // of them in a row
	restarts map[string]int // of each container, before this run
	next     func() (time.Duration, bool)
	stop     func()    // ends next
	retryAt  time.Time // when the next try is due, zero when none is

	part // in its Job
}

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
func (p *pod) drive(ctx context.Context, all *assembly) {
	if p.over {
		return
	}
	arrived := false
	for ctx.Err() == nil && !p.over {
		if !p.awaitTurn(ctx) {
			continue
		}
		p.step(ctx)
		switch {
		case p.over || ctx.Err() != nil:
			continue
		case p.view.Standing != goal.Underway && !arrived:
			all.arrive()
			arrived = true
		case p.view.Standing == goal.Underway && arrived:
			if !all.depart() {
				return // the look at all pods that follows will see it
			}
			arrived = false
		}
		if !p.wait(ctx, all.full) {
			return
		}
	}
	if p.over && !arrived {
		all.arrive()
	}
}

// step looks at the pod, syncs it unless it is where it should be, and looks again.
func (p *pod) step(ctx context.Context) {
	if p.jobOver() {
		p.failWithJob(ctx)
		return
	}
	if (p.begun || p.kept) && !p.wanting(ctx) {
		return
	}
	if p.sync(ctx) && !p.over && p.view.Standing == goal.Underway {
		p.fault(ctx, p.err)
	}
}

// wanting looks at a pod that was begun and says whether it is to be synced now.
func (p *pod) wanting(ctx context.Context) bool {
	before := p.status
	if err := p.look(ctx); err != nil {
		p.fault(ctx, err)
		return false
	}
	switch {
	case p.over:
		return false
	case p.again:
		return !time.Now().Before(p.due)
	case !p.begun:
		return true // a pod of an earlier run is synced once, whatever it looks like
	case p.view.Standing != goal.Underway || p.view.Again > 0:
		p.stopRetries()
		return ailing(p.status)
	case p.crashLoop(ctx):
		return false
	}
	return !time.Now().Before(p.retryAt) || !reflect.DeepEqual(before, p.status)
}

// ailing says whether a container runs that is not ready. A liveness or startup probe may
// want it restarted, and Sync knows; that holds, too, for a run that only wants it to run.
func ailing(st v1.PodStatus) bool {
	return slices.ContainsFunc(podspec.Statuses(st), func(cs v1.ContainerStatus) bool {
		return cs.State.Running != nil && !cs.Ready
	})
}

// sync works on the pod within the gate and reports whether there is a new status or
// error to act on.
func (p *pod) sync(ctx context.Context) bool {
	if p.ticket == nil {
		p.ticket = p.r.gate.queue(p.rank)
	}
	err := p.r.gate.enter(ctx, p.ticket)
	p.ticket = nil
	if err != nil {
		return false
	}
	defer p.r.gate.leave()
	if !p.begun {
		p.begun = true
		p.job.Begin()
		p.r.progress(p.pod, "Starting", "", 0)
	}
	if err = p.anew(ctx); err == nil {
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
	old := p.view
	st, err := p.r.rt.Status(ctx, p.pod)
	if err != nil {
		err = fmt.Errorf("looking at pod %q: %w", p.pod.Name, err)
		p.view = goal.View{Reason: "StatusUnknown", Message: err.Error()}
		p.moved(old)
		return err
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
	if p.again {
		return nil
	}
	p.view = p.r.goal.Look(p.pod, st, time.Now())
	if p.view.Ended && !p.tryAgain(ctx) {
		p.end(ctx)
	}
	if p.over {
		return nil
	}
	p.moved(old)
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

// moved reports where the pod has come to, when that is new.
func (p *pod) moved(old goal.View) {
	state, step := string(p.view.Standing), 0
	switch at := p.view.Standing != goal.Underway; {
	case at && !p.there:
		step = 1
		p.res.Elapsed = p.r.since()
	case !at && p.there:
		step = -1
	}
	p.there = p.view.Standing != goal.Underway
	if p.view.Standing == goal.Underway {
		state = "Waiting"
	}
	if step != 0 || old.Reason != p.view.Reason || old.Standing != p.view.Standing {
		p.r.progress(p.pod, state, p.view.Message, step)
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
		case <-p.job.Over():
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
	if p.view.Again > 0 {
		d = min(d, p.view.Again)
	}
	for _, at := range []time.Time{p.retryAt, p.due} {
		if due := at.Sub(now); due > 0 {
			d = min(d, due)
		}
	}
	return d
}
