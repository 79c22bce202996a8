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

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// pollInterval is how often a pod's status is checked without an event: an engine that was
// restarted may have lost some.
const pollInterval = 10 * time.Second

// reviveInterval is after what time a pod is tried again that was given up, the longest back-off of
// the kubelet.
const reviveInterval = 5 * time.Minute

// pod drives one pod to its goal. Only one goroutine at a time works on it.
type pod struct {
	r       *run
	pod     *v1.Pod
	res     *Result
	rank    int
	slot    *waiter // for its next Sync, queued or held; nil while it waits for anything else
	changes <-chan struct{}

	kept      bool         // it already runs, from an earlier run
	found     bool         // it had reached its goal or had ended when this run first observed it
	synced    bool         // this run has begun to start it
	announced bool         // that it is started
	pulling   bool         // its images are being pulled
	status    v1.PodStatus // the last one
	history   history      // nil before the first status
	cond      condition    // of that status, or of an error

	err       error     // of the last Sync
	cut       error     // of a Sync that the end of the run has interrupted, if it says more than that
	retries   int       // after errors
	streak    int       // retries since the last success
	retryAt   time.Time // when the next retry is due, zero if none is
	gaveUp    time.Time // when it was given up after errors, zero if it was not
	preemptor *v1.Pod   // of another run

	jobMember
}

// done says whether the pod has reached its goal or has ended.
func (p *pod) done() bool { return p.cond.outcome != "" }

// started says whether the pod was started, in this run or in an earlier one.
func (p *pod) started() bool { return p.synced || p.kept }

func (p *pod) name() string { return podspec.FullName(p.pod) }

// subscribe asks for events of the pod. Without them it is polled.
func (p *pod) subscribe(ctx context.Context) {
	var err error
	if p.changes, err = p.r.rt.Changes(ctx, p.pod); err != nil {
		p.warn(ctx, "cannot watch the pod, polling it instead", err)
	}
}

func (p *pod) warn(ctx context.Context, message string, err error) {
	p.r.o.Logger.WarnContext(ctx, message, "pod", p.name(), "error", err)
}

// drive works on the pod until it has ended or the round is over, because all pods are done or
// ctx is. Until then a pod at its goal is watched and kept there.
func (p *pod) drive(ctx, round context.Context) {
	defer p.leaveSlot()
	for round.Err() == nil && p.goesOn(round) {
		if !p.awaitJob(round) {
			return
		}
		if p.converge(ctx, round); !p.cond.ended {
			p.wait(round)
		}
	}
}

// goesOn says whether there is something to do for the pod. One that was given up is tried again
// after a while if the run keeps its pods.
func (p *pod) goesOn(round context.Context) bool {
	if !p.cond.ended || !p.r.kept || p.gaveUp.IsZero() {
		return !p.cond.ended
	}
	select {
	case <-time.After(time.Until(p.gaveUp.Add(reviveInterval))):
	case <-round.Done():
		return false
	}
	p.gaveUp, p.cond.ended = time.Time{}, false
	p.rejoin()
	return true
}

// leaveSlot gives up the pod's slot, whether it holds it or is queued for it.
func (p *pod) leaveSlot() {
	if p.slot != nil {
		p.r.slots.leave(p.slot)
		p.slot = nil
	}
}

// converge observes the pod, syncs it if it needs that, and handles the result. The pod has no
// slot afterwards, whatever it has found.
func (p *pod) converge(ctx, round context.Context) {
	defer p.leaveSlot()
	if p.jobFailed() {
		p.leaveSlot()
		p.failWithJob(ctx)
		return
	}
	if p.started() && !p.needsSync(ctx) {
		return
	}
	if p.sync(ctx, round) && !p.done() {
		p.handle(ctx, p.err)
	}
}

// needsSync observes a started pod and says whether it has to be synced now.
func (p *pod) needsSync(ctx context.Context) bool {
	before := p.status
	if err := p.observe(ctx); err != nil {
		p.handle(ctx, err)
		return false
	}
	switch {
	case p.cond.ended || p.dropRetry(ctx):
		return false
	case p.willRetry():
		return !time.Now().Before(p.jobRetryAt)
	case !p.synced:
		return true // a pod of an earlier run is synced at least once
	case p.crashLoop(ctx):
		return false
	case p.done() || p.cond.recheck > 0:
		p.resetRetries()
		return hasUnready(p.status)
	}
	return !time.Now().Before(p.retryAt) || !reflect.DeepEqual(before, p.status)
}

// hasUnready says whether a running container is not ready. Its liveness or startup probe may
// ask for a restart, which Sync carries out, also when the run only waits for running.
func hasUnready(st v1.PodStatus) bool {
	return slices.ContainsFunc(podspec.Statuses(st), func(cs v1.ContainerStatus) bool {
		return cs.State.Running != nil && !cs.Ready
	})
}

// sync syncs the pod in a slot and says whether there is a new status or error to handle.
func (p *pod) sync(ctx, round context.Context) bool {
	until := ctx
	if p.r.o.Keep != nil {
		until = round
	}
	if p.pull(until); until.Err() != nil {
		return false
	}
	if p.slot == nil {
		p.slot = p.r.slots.reserve(p.rank)
	}
	if !p.slot.acquire(ctx) || p.jobFailed() {
		return false
	}
	p.begin()
	if !p.announced && !p.kept {
		p.r.progress(Progress{Pod: p.pod, State: "Starting"}, 0)
	}
	p.announced = true
	err := p.removeForRetry(ctx)
	if err == nil {
		err = p.r.rt.Sync(ctx, p.pod)
	}
	if ctx.Err() != nil {
		p.cut = beyondEnd(ctx, err)
		return false // an interrupted Sync does not make the pod fail
	}
	p.err = errors.Join(err, p.observe(ctx))
	return true
}

// beyondEnd returns the error if it says more than that ctx is done.
func beyondEnd(ctx context.Context, err error) error {
	if err == nil || err.Error() == ctx.Err().Error() || err.Error() == context.Cause(ctx).Error() {
		return nil
	}
	return err
}

// pull pulls the images that the next Sync needs. The pod has no slot while it waits for them.
func (p *pod) pull(ctx context.Context) {
	rt, ok := p.r.rt.(Puller)
	if !ok || p.willRetry() {
		return
	}
	pull := rt.MissingImages(ctx, p.pod)
	if pull == nil {
		return
	}
	p.leaveSlot()
	p.begin()
	p.r.progress(Progress{Pod: p.pod, State: "Pulling"}, 0)
	p.pulling = true
	pull(ctx)
	p.pulling = ctx.Err() != nil
}

// begin notes that this run starts the pod.
func (p *pod) begin() {
	if !p.synced {
		p.synced = true
		p.job.startDeadline()
	}
}

// observe gets the pod's status and judges it.
func (p *pod) observe(ctx context.Context) error {
	first := p.history == nil
	if err := p.refresh(ctx); err != nil {
		p.setCondition(condition{reason: "StatusUnknown", message: err.Error()})
		return err
	}
	if p.willRetry() {
		return nil
	}
	c := p.judge()
	p.found = p.found || first && c.outcome != ""
	if c.ended {
		c = p.retryInJob(ctx, c)
	}
	if c.ended {
		p.end(ctx, c)
	} else {
		p.setCondition(c)
	}
	return nil
}

// judge returns the condition of the pod by its last status.
func (p *pod) judge() condition { return p.r.goal.judge(p.pod, p.status, p.history, time.Now()) }

// refresh gets the pod's status.
func (p *pod) refresh(ctx context.Context) error {
	st, err := p.r.rt.Status(ctx, p.pod)
	if err != nil {
		return fmt.Errorf("getting the status of pod %q: %w", p.pod.Name, err)
	}
	switch {
	case p.history == nil && p.kept:
		p.history = newHistory(st)
	case p.history == nil:
		p.history = history{}
	}
	p.history.add(st, p.r.o.Start, time.Now())
	p.setStatus(st)
	return nil
}

// setStatus keeps the status. A pod that has ended gives up its addresses; the result still
// has them.
func (p *pod) setStatus(st v1.PodStatus) {
	if st.PodIP == "" {
		st.PodIP, st.PodIPs = p.status.PodIP, p.status.PodIPs
	}
	p.status = st
}

// setCondition keeps the condition and reports a new one, or a new message of it.
func (p *pod) setCondition(c condition) {
	old, wasDone := p.cond, p.done()
	p.cond = c
	step, message := 0, c.message
	switch done := p.done(); {
	case done && !wasDone:
		step = 1
		p.res.Elapsed = time.Since(p.r.o.Start)
	case !done && wasDone:
		step, message = -1, fmt.Sprintf("no longer %s: %s", old.outcome, c.message)
	}
	if old.reason != c.reason || old.outcome != c.outcome || old.message != c.message {
		p.r.progress(Progress{Pod: p.pod, State: cmp.Or(string(c.outcome), "Waiting"), Reason: c.reason, Message: message}, step)
	}
}

// end makes the outcome final.
func (p *pod) end(ctx context.Context, c condition) {
	p.resetRetries()
	p.job.leave(p.pod.UID, p.jobSlot, c.outcome == Succeeded)
	p.setCondition(c)
	if err := p.cleanUp(ctx); c.outcome == Succeeded && isTaken(err) && p.preemptor == nil {
		// Its containers have ended with 0 because they were told to end.
		c = failed(failure.Reason(err, reasonSyncError), err.Error())
		p.status.Phase, p.status.Reason, p.status.Message = v1.PodFailed, c.reason, c.message
		p.setCondition(c)
	}
	if c.outcome == Failed && p.preemptor == nil && p.r.o.FailFast {
		p.r.abort(failFastError{p.name()})
	}
}

// cleanUp releases what a pod no longer needs that has ended. Its error says that another process has stopped
// the pod.
func (p *pod) cleanUp(ctx context.Context) error {
	if !podspec.Ended(p.status.Phase) || !p.synced {
		return nil
	}
	// Sync releases the namespaces and addresses of a pod that has ended.
	err := p.r.rt.Sync(ctx, p.pod)
	p.preemptor = preemptedBy(err)
	if isTaken(err) {
		return err
	}
	if err != nil {
		p.warn(ctx, "cannot clean up the ended pod", err)
	}
	// It has also stopped what still ran at the end: sidecars, or containers past a deadline.
	if podspec.Runs(p.status) {
		if st, err := p.r.rt.Status(ctx, p.pod); err == nil && st.Phase == p.status.Phase {
			p.setStatus(st)
		}
	}
	return nil
}

// wait waits until the pod has to be observed again, or the round is over.
func (p *pod) wait(round context.Context) {
	timer := time.NewTimer(p.nextPoll(time.Now()))
	defer timer.Stop()
	for {
		select {
		case _, open := <-p.changes:
			if open {
				return
			}
			p.changes = nil
		case <-timer.C:
			return
		case <-p.job.done():
			return
		case <-p.succeededMeanwhile():
			return
		case <-round.Done():
			return
		}
	}
}

// nextPoll is when the pod is observed again without an event.
func (p *pod) nextPoll(now time.Time) time.Duration {
	d := pollInterval
	if p.cond.recheck > 0 {
		d = min(d, p.cond.recheck)
	}
	for _, at := range []time.Time{p.retryAt, p.jobRetryAt} {
		if due := at.Sub(now); due > 0 {
			d = min(d, due)
		}
	}
	return d
}
