package runonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// pollInterval is how often a pod's status is checked without an event: an engine that was
// restarted may have lost some.
const pollInterval = 10 * time.Second

// reviveInterval is after what time a pod is tried again that was given up, the longest back-off of
// the kubelet.
const reviveInterval = 5 * time.Minute

// stage is how far a run has come with a pod.
type stage int

// The stages of a pod. It keeps the last one when it has ended, which its condition says.
const (
	queued    stage = iota // nothing of it was started yet
	adopted                // it is of an earlier run, and this one has yet to sync it
	pulling                // its images are pulled, for the next Sync
	synced                 // whenever it needs that
	replacing              // it has failed, and is removed and started again when that is due
)

// pod drives one pod to its goal. Only one goroutine at a time works on it.
type pod struct {
	r         *run
	pod       *v1.Pod
	res       *Result
	goal      goal
	rank      int
	gates     gates
	member    *jobMember // the gate of its Job, nil if it has none
	admission *admission // its gate if pods wait for room, else nil
	// dependent is the gate of its dependencies, nil if it has none and no pod depends on it.
	dependent *dependent
	slot      *waiter         // for its next Sync, queued or held; nil while it waits for anything else
	woken     chan struct{}   // gets a value when its gates or slot have changed
	changes   <-chan struct{} // events of the pod; without them it is polled

	stage    stage
	due      time.Time    // when it is tried again, after an error, a failure or the end; zero if it is not
	status   v1.PodStatus // the last one
	history  history      // nil before the first status of an adopted pod
	cond     condition    // of that status, or of an error
	recorded condition    // what the runtime was told to keep of it

	err       error   // of the last Sync
	cut       error   // of a Sync that the end of the run has interrupted, if it says more than that
	retries   int     // after errors and failures
	streak    int     // retries after errors since the last success
	preemptor *v1.Pod // of another run
	cleaned   bool    // it has ended, and what it no longer needs was released
	scheduled bool    // it was recorded that the run starts it
	measured  measured
}

// podOf returns the pod of an admitted decision, which has the given result.
func (r *run) podOf(d admit.Decision, res *Result) *pod {
	p := &pod{r: r, pod: d.Pod, res: res, history: history{}, woken: make(chan struct{}, 1)}
	p.goal = goal{until: r.o.Until, settle: r.o.Settle, await: r.o.Await.containers(d.Pod)}
	if res.Existed = d.Running; d.Running {
		p.stage, p.history = adopted, nil
	}
	return p
}

// done says whether the pod has reached its goal or has ended.
func (p *pod) done() bool { return p.cond.outcome != "" }

// started says whether the pod was started, in this run or in an earlier one.
func (p *pod) started() bool { return p.stage > queued }

// begun says whether this run has begun to start the pod.
func (p *pod) begun() bool { return p.stage > adopted }

// enter brings the pod to a stage, and reports what this run starts.
func (p *pod) enter(s stage) {
	if p.stage == queued {
		p.recordScheduled()
	}
	switch {
	case s == pulling:
		p.r.progress(Progress{Pod: p.pod, State: "Pulling"}, 0)
	case p.stage == queued:
		p.r.progress(Progress{Pod: p.pod, State: "Starting"}, 0)
	}
	p.stage = s
	p.gates.changed(p.cond)
}

func (p *pod) warn(ctx context.Context, message string, err error) {
	p.r.o.Logger.WarnContext(ctx, message, "pod", podspec.FullName(p.pod), "error", err)
}

// drive works on the pod until it has ended or the round is over, because all pods are done or
// ctx is. Until then a pod at its goal is watched and kept there.
func (p *pod) drive(ctx, round context.Context) {
	defer p.leaveSlot()
	defer p.pullAhead(round)()
	for round.Err() == nil && p.goesOn(round) && p.await(round, p.gates.open) {
		p.converge(ctx, round)
		// What is removed if the run is killed may depend on it.
		if p.cond.ended || p.r.kept || p.r.o.Remove == RemoveFailed {
			p.conclude(ctx, p.cond.outcome, p.cond.reason, p.cond.message)
		}
		if !p.cond.ended {
			p.wait(round)
		}
	}
}

// goesOn says whether there is something to do for the pod. One that was given up is tried again
// after a while if the run keeps its pods.
func (p *pod) goesOn(round context.Context) bool {
	switch {
	case !p.cond.ended || !p.r.kept:
		return !p.cond.ended
	case p.cond.reason == ReasonDependencyFailed:
		return p.awaitOthers(round)
	case p.due.IsZero():
		return false
	}
	select {
	case <-time.After(time.Until(p.due)):
	case <-round.Done():
		return false
	}
	p.due, p.cond.ended = time.Time{}, false
	return true
}

// leaveSlot gives up the pod's slot, whether it holds it or is queued for it.
func (p *pod) leaveSlot() {
	if p.slot != nil {
		p.r.slots.leave(p.slot)
		p.slot = nil
	}
}

// converge observes the pod, syncs it if it needs that, and handles the result. It ends a pod that
// has to end because of others. The pod has no slot afterwards, whatever it has found.
func (p *pod) converge(ctx, round context.Context) {
	defer p.leaveSlot()
	if !p.condemned() && (!p.started() || p.needsSync(ctx)) && p.sync(ctx, round) && !p.done() {
		p.handle(ctx, p.err)
	}
	if c := p.gates.verdict(); c.ended && !p.cond.ended && round.Err() == nil {
		p.leaveSlot() // ending it may take a while
		p.obey(ctx, c)
	}
}

// obey ends the pod because of others, unless it has ended by itself.
func (p *pod) obey(ctx context.Context, c condition) {
	if c.outcome == Canceled { // of what it has started, nothing runs
		p.end(ctx, c)
		return
	}
	if p.started() {
		if err := p.observe(ctx); err != nil {
			p.handle(ctx, err)
			return
		}
	}
	if !p.cond.ended {
		p.end(ctx, p.fail(ctx, c))
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
	case p.cond.ended:
		return false
	case p.stage == replacing:
		return !time.Now().Before(p.due)
	case p.stage == adopted:
		return true
	case p.crashLoop(ctx):
		return false
	case p.done() || p.cond.recheck > 0:
		p.resetRetries()
		return hasUnready(p.status) && !p.settled()
	}
	return !time.Now().Before(p.due) && !p.settled() || !reflect.DeepEqual(before, p.status)
}

// settled says whether the next Sync would do nothing.
func (p *pod) settled() bool {
	rt, ok := p.r.rt.(Settler)
	return ok && p.err == nil && rt.Settled(p.pod)
}

// sync syncs the pod in a slot and says whether there is a new status or error to handle.
func (p *pod) sync(ctx, round context.Context) bool {
	until := ctx
	if p.r.o.Keep != nil {
		until = round
	}
	begin := time.Now()
	if p.pull(until); until.Err() != nil {
		return false
	}
	pulled := time.Since(begin)
	if p.slot == nil {
		p.slot = p.r.slots.reserve(p.rank, p.wake)
	}
	if !p.await(until, p.slot.holds) || p.condemned() {
		return false
	}
	if p.stage < synced {
		p.enter(synced)
	}
	ready := time.Now()
	err := p.replace(ctx)
	if err == nil {
		p.limitRestarts()
		err = p.r.rt.Sync(ctx, p.pod)
	}
	if ctx.Err() != nil {
		p.cut = ignoreCanceled(ctx, err)
		return false // an interrupted Sync does not make the pod fail
	}
	p.err = errors.Join(err, p.observe(ctx))
	p.measureSync(begin, pulled+time.Since(ready))
	return true
}

// pull pulls the images that the next Sync needs. The pod has no slot while it waits for them.
func (p *pod) pull(ctx context.Context) {
	rt, ok := p.r.rt.(Puller)
	if !ok || p.stage == replacing {
		return
	}
	pull := rt.MissingImages(ctx, p.pod)
	if pull == nil {
		return
	}
	p.leaveSlot()
	before := p.stage
	p.enter(pulling)
	if pull(ctx); ctx.Err() == nil {
		p.stage = before
	}
}

// observe gets the pod's status and judges it.
func (p *pod) observe(ctx context.Context) error {
	if err := p.refresh(ctx); err != nil {
		p.setCondition(condition{reason: reasonUnknown, message: err.Error()})
		return err
	}
	if p.stage == replacing {
		return nil // it has been judged
	}
	c := p.judge()
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
func (p *pod) judge() condition {
	c := p.goal.judge(p.pod, p.status, p.history, time.Now())
	if note, ok := p.r.o.Notes[p.pod.UID]; ok && c.outcome.AtGoal() && c.reason == "" {
		c.reason, c.message = note.Reason, note.Message
	}
	return c
}

// refresh gets the pod's status.
func (p *pod) refresh(ctx context.Context) error {
	st, err := p.r.rt.Status(ctx, p.pod)
	if err != nil {
		return fmt.Errorf("getting the status of pod %q: %w", p.pod.Name, err)
	}
	if p.history == nil {
		p.history = newHistory(st)
	}
	p.history.add(st, p.r.o.Start, time.Now())
	p.setStatus(st)
	p.measureStatus()
	if rt, ok := p.r.rt.(Publisher); ok {
		if err := rt.Publish(ctx, p.pod, st); err != nil && ctx.Err() == nil {
			p.warn(ctx, "could not publish the pod; others may not reach it", err)
		}
	}
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
		if p.stage != adopted { // else it was there before
			p.res.Elapsed = time.Since(p.r.o.Start)
		}
	case !done && wasDone:
		step, message = -1, fmt.Sprintf("no longer %s: %s", old.outcome, c.message)
	}
	p.recordChange(old, c)
	if old.reason != c.reason || old.outcome != c.outcome || old.message != c.message {
		p.r.progress(Progress{Pod: p.pod, State: cmp.Or(string(c.outcome), "Waiting"), Reason: c.reason, Message: message, Lacks: c.lacks}, step)
	}
	p.gates.changed(c)
}

// retryAt plans the next try and reports that.
func (p *pod) retryAt(due time.Time, message string) {
	p.due = due
	p.r.progress(Progress{Pod: p.pod, State: "Retrying", Message: message, RetryAt: due}, 0)
}

// end makes the outcome final.
func (p *pod) end(ctx context.Context, c condition) {
	p.resetRetries()
	p.measureEnd()
	stopped := c.reason == reasonStopped
	if stopped || p.r.o.Keep != nil {
		p.gates.changed(c) // and reported when the error says by whom
	} else {
		p.setCondition(c) // cleaning up may take a while
	}
	p.admission.endForGood(ctx, c)
	if err := p.cleanUp(ctx); isStoppedByOther(err) && p.preemptor == nil && (stopped || c.outcome == Succeeded || p.r.o.Keep != nil) {
		// Its containers have ended because they were told to end.
		c = failed(failure.Reason(err, reasonSyncError), err.Error())
		p.status.Phase, p.status.Reason, p.status.Message = v1.PodFailed, c.reason, c.message
	}
	c = p.allowRemoval(c)
	p.cleaned = true
	p.setCondition(c)
	if p.r.o.FailFast && p.countsAsFailed(c) {
		p.r.abort(failFastError{podspec.FullName(p.pod)})
	}
}

// countsAsFailed says whether the pod has ended so that it ends a run with Options.FailFast.
func (p *pod) countsAsFailed(c condition) bool {
	if podspec.IsOptional(p.pod) {
		return false
	}
	if c.outcome == Canceled && c.reason == ReasonDependencyFailed { // or the other pod has ended the run
		cause, outcome := p.dependent.becauseOf()
		return outcome == Failed && podspec.IsOptional(cause)
	}
	return c.outcome == Failed && p.preemptor == nil
}

// allowRemoval returns the condition, and for a pod that another process has stopped that this is no
// failure if the run keeps its pods: it has no end at which the pod should have got somewhere.
func (p *pod) allowRemoval(c condition) condition {
	if p.r.o.Keep != nil && p.preemptor == nil && c.outcome == Failed && c.reason == reasonStopped {
		c.outcome = Removed
	}
	return c
}

// cleanUp releases what a pod no longer needs that has ended. Its error says that another process has stopped
// the pod.
func (p *pod) cleanUp(ctx context.Context) error {
	debugged := podspec.AnyRuns(p.status) && !podspec.Runs(p.status) // nobody may have seen the end of the others
	if !podspec.Ended(p.status.Phase) || !p.begun() && !debugged {
		return nil
	}
	// Sync releases the namespaces and addresses of a pod that has ended.
	begin := time.Now()
	err := p.r.rt.Sync(ctx, p.pod)
	p.r.o.Meter.Synced(p.pod, SyncTerminated, time.Since(begin))
	p.preemptor = preemptedBy(err)
	if isStoppedByOther(err) {
		return err
	}
	if err != nil {
		p.warn(ctx, "could not clean up the finished pod", err)
	}
	// It has also stopped what still ran at the end: sidecars, ephemeral containers, or containers past a deadline.
	if podspec.AnyRuns(p.status) {
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
		case <-p.woken:
			if p.condemned() {
				return
			}
		case <-timer.C:
			return
		case <-round.Done():
			return
		}
	}
}

// nextPoll is when the pod is observed again without an event: at a full second, since many pods together cost less than
// each by itself.
func (p *pod) nextPoll(now time.Time) time.Duration {
	d := now.Add(pollInterval).Truncate(time.Second).Sub(now)
	recheck := time.Duration(0)
	if p.dependent != nil {
		recheck = p.dependent.recheck
	}
	for _, left := range []time.Duration{p.cond.recheck, p.due.Sub(now), recheck} {
		if left > 0 {
			d = min(d, left)
		}
	}
	return d
}
