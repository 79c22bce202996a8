package runonce

import (
	"cmp"
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// UntilDeleted is a goal of Wait alone: the pod does not exist any more.
const UntilDeleted Until = "deleted"

// unknownFor is how long Wait goes on without knowing the state of a pod: an engine is restarted within that time.
const unknownFor = time.Minute

// leastLook is how long the first look at a pod may take, whatever the timeout of Wait is: the machine may be busy.
const leastLook = 10 * time.Second

// Observer sees pods that other processes manage, and changes nothing about them.
type Observer interface {
	// Observe returns what is known of the pod now.
	Observe(ctx context.Context, pod *v1.Pod) (Observed, error)
	// Changes returns a channel that gets a value when Observe may return something else; values
	// coalesce. It is closed when ctx is done.
	Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error)
}

// Observed is what is known of a pod that other processes manage.
type Observed struct {
	// Pod has its status. It is nil if the pod does not exist any more.
	Pod *v1.Pod
	// Managed says that somebody starts and restarts the containers as the pod asks for.
	Managed bool
	// Undecided says that a run of the pod goes on that has not decided about it: it may start a pod again that
	// has ended.
	Undecided bool
	// Outcome is what the last run has decided, empty if that is not known.
	Outcome         Outcome
	Reason, Message string
}

// judgeObserved returns the condition of a pod that others manage: an outcome if the pod has reached the goal, or
// can never reach it.
func (g goal) judgeObserved(o Observed, h history, now time.Time) condition {
	switch {
	case o.Pod == nil && g.until == UntilDeleted:
		return condition{outcome: Removed, ended: true}
	case o.Outcome == Preempted:
		return condition{outcome: Preempted, ended: true, reason: o.Reason, message: o.Message}
	case o.Pod == nil:
		return failed("NotFound", "the pod does not exist any more")
	case g.until == UntilDeleted:
		return condition{reason: "PodExists", message: "the pod still exists"}
	}
	c := g.judge(o.Pod, o.Pod.Status, h, now)
	switch {
	case c.ended && o.Undecided:
		c.outcome, c.ended = "", false
	case c.outcome == "" && o.Outcome == Failed && needsManager(o.Pod):
		return failed(o.Reason, o.Message)
	case c.outcome == "" && !o.Managed && needsManager(o.Pod):
		return failed(c.reason, c.message+"; nothing starts or stops its containers, since no run or watch of the pod goes on")
	}
	return c
}

// needsManager says whether a pod that has not ended gets no further by itself: a container has to be started, or
// its sidecars have to be stopped.
func needsManager(pod *v1.Pod) bool {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cs := statusOf(pod.Status.InitContainerStatuses, c.Name)
		completed := cs.State.Terminated != nil && !podspec.Failed(pod, c, cs.State.Terminated) || laterStarted(pod, pod.Status, i)
		if podspec.IsSidecar(c) && cs.State.Running == nil || !podspec.IsSidecar(c) && !completed {
			return true
		}
	}
	runs := false
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if finalEnd(pod, c, pod.Status) != nil {
			continue
		}
		if runs = true; statusOf(pod.Status.ContainerStatuses, c.Name).State.Running == nil {
			return true
		}
	}
	return !runs
}

// Wait waits until the pods, which others manage, have reached the goal once or can never reach it, and returns what
// has become of each, in their order. It looks at each at least once, also if the timeout has passed already. Of the
// options, those that are about starting pods mean nothing.
func Wait(ctx context.Context, obs Observer, pods []*v1.Pod, o Options) []Result {
	o = o.withDefaults()
	limited, cancel := o.WithTimeout(ctx)
	defer cancel()
	w := &wait{o: o, obs: obs, total: len(pods)}
	results := make([]Result, len(pods))
	var wg sync.WaitGroup
	for i, pod := range pods {
		p := &waitingPod{w: w, pod: pod, goal: goal{until: o.Until, settle: o.Settle}}
		wg.Go(func() {
			p.wait(ctx, limited)
			results[i] = p.result(limited)
		})
	}
	wg.Wait()
	return results
}

// wait is one call of Wait.
type wait struct {
	o     Options
	obs   Observer
	total int

	mu   sync.Mutex
	done int
}

// progress reports a new condition of a pod.
func (w *wait) progress(pod *v1.Pod, c condition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.outcome != "" {
		w.done++
	}
	w.o.Progress(Progress{Pod: pod, State: cmp.Or(string(c.outcome), "Waiting"), Reason: c.reason, Message: c.message, Done: w.done, Total: w.total})
}

// waitingPod is a pod that is waited for.
type waitingPod struct {
	w       *wait
	pod     *v1.Pod // as it was seen last
	goal    goal
	history history
	cond    condition
	elapsed time.Duration // until its outcome
	unknown time.Time     // since when its state is not known, zero if it is
}

// wait looks at the pod until it has an outcome or limited is done, which has the timeout. It looks at least once
// unless ctx is done.
func (p *waitingPod) wait(ctx, limited context.Context) {
	changes, err := p.w.obs.Changes(limited, p.pod)
	if err != nil && limited.Err() == nil {
		p.w.o.Logger.WarnContext(ctx, "could not watch the pod; looking at it every "+pollInterval.String(), "pod", podspec.FullName(p.pod), "error", err)
	}
	first, cancel := limited, context.CancelFunc(func() {})
	if deadline, ok := limited.Deadline(); ok && time.Until(deadline) < leastLook {
		first, cancel = context.WithTimeout(ctx, leastLook)
	}
	defer cancel()
	for p.look(first); p.cond.outcome == ""; p.look(limited) {
		timer := time.NewTimer(cmp.Or(p.cond.recheck, pollInterval))
		select {
		case _, open := <-changes:
			if !open {
				changes = nil
			}
		case <-timer.C:
		case <-limited.Done():
		}
		timer.Stop()
		if limited.Err() != nil {
			return
		}
	}
	p.elapsed = time.Since(p.w.o.Start)
}

// look observes the pod and judges it.
func (p *waitingPod) look(ctx context.Context) {
	seen, err := p.w.obs.Observe(ctx, p.pod)
	now := time.Now()
	var c condition
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		c = p.judgeUnknown(err, now)
	default:
		p.unknown = time.Time{}
		if seen.Pod != nil {
			p.pod = seen.Pod
			p.remember(seen.Pod.Status, now)
		}
		c = p.goal.judgeObserved(seen, p.history, now)
	}
	changed := c != p.cond
	p.cond = c
	if changed {
		p.w.progress(p.pod, c)
	}
}

// remember notes the status in the history.
func (p *waitingPod) remember(st v1.PodStatus, now time.Time) {
	if p.history == nil {
		p.history = newHistory(st)
	}
	p.history.add(st, p.w.o.Start, now)
}

// judgeUnknown returns the condition of a pod whose state cannot be read.
func (p *waitingPod) judgeUnknown(err error, now time.Time) condition {
	if p.unknown.IsZero() {
		p.unknown = now
	}
	if failure.IsPermanent(err) || now.Sub(p.unknown) >= unknownFor {
		return failed(failure.Reason(err, reasonUnknown), err.Error())
	}
	return condition{reason: reasonUnknown, message: err.Error(), recheck: time.Second}
}

// result returns what has become of the pod.
func (p *waitingPod) result(ctx context.Context) Result {
	res := Result{
		Pod: p.pod, Outcome: p.cond.outcome, Reason: p.cond.reason, Message: p.cond.message, Elapsed: p.elapsed,
		Restarts: p.history.restarts(p.pod.Status), Existed: true, EarlierRun: true, Status: p.pod.Status,
	}
	if res.Outcome == "" {
		res.Outcome, res.Elapsed = interrupted(context.Cause(ctx)), time.Since(p.w.o.Start)
	}
	if p.w.o.Logs != nil {
		var err error
		if res.Containers, err = Containers(p.pod, p.w.o.Logs, !res.Outcome.AtGoal() && res.Outcome != Removed); err != nil {
			p.w.o.Logger.WarnContext(ctx, "could not read the end of a log", "error", err)
		}
		AddUsage(ctx, p.w.obs, p.pod, res.Containers)
	}
	res.Status.Phase = cmp.Or(res.Status.Phase, v1.PodPending)
	return res
}
