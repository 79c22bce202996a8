package runonce

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
)

// ReasonDependencyFailed is the reason of canceled pods that have not started because of another pod on
// which they depend, directly or not. Their message says what has become of that.
const ReasonDependencyFailed = admit.ReasonDependencyFailed

// reasonWaiting is the reason of a pod that waits for others on which it depends.
const reasonWaiting = "WaitingForDependency"

// order is what the pods of a run wait for: the pods on which others depend, and the dependencies, each
// once for all pods that have it. The lock guards what both know.
type order struct {
	mu       sync.Mutex
	awaited  map[types.NamespacedName]*awaited
	awaiting map[string]*dependency // by their IDs
}

// awaited is a pod as those see it that depend on it.
type awaited struct {
	name    types.NamespacedName
	res     *Result       // nil for an invalid pod
	wanted  []*dependency // that it is part of
	reached map[Until]bool
	bad     bool      // it has ended, or will not start, and that was not what others wait for
	end     condition // of it then
	cause   *awaited  // why, if it is not to blame itself
	message string    // why it has not reached its goal yet
}

// dependency is a condition that one or more pods must have reached. Once a pod has reached it, that is not
// taken back.
type dependency struct {
	podspec.Dependency
	pods  []*awaited
	left  int      // pods that have not reached the condition
	bad   int      // pods that are bad
	wakes []func() // the pods that depend on it
}

// joinOrder gives the pods that depend on others, and these, their gates, which come before all others. A pod
// on which others depend has what they wait for as its goal, if that is more than the goal of the run.
func (r *run) joinOrder(ctx context.Context, ds []admit.Decision, results []Result, pods []*pod) {
	if !slices.ContainsFunc(ds, func(d admit.Decision) bool { return len(d.DependsOn) > 0 }) {
		return
	}
	o := &order{awaited: map[types.NamespacedName]*awaited{}, awaiting: map[string]*dependency{}}
	rows, started := map[types.NamespacedName]int{}, map[*Result]*pod{}
	for i, d := range slices.Backward(ds) {
		if !d.Prune {
			rows[podspec.NameOf(d.Pod)] = i
		}
	}
	for _, p := range pods {
		started[p.res] = p
	}
	join := func(p *pod) *dependent {
		if p.dependent == nil {
			p.dependent = &dependent{o: o, p: p, since: time.Now()}
			p.gates = append(gates{p.dependent}, p.gates...)
		}
		return p.dependent
	}
	for i, d := range ds {
		p := started[&results[i]]
		if p == nil || len(d.DependsOn) == 0 {
			continue
		}
		g := join(p)
		g.exempt = r.hasStarted(ctx, d)
		for _, on := range d.DependsOn {
			known := o.awaiting[on.ID()]
			if known == nil {
				known = o.add(on, rows, results)
				for _, a := range known.pods {
					if p := started[a.res]; p != nil {
						join(p).self = a
						p.goal.raise(on.Condition)
					}
				}
			}
			known.wakes = append(known.wakes, p.wake)
			g.on = append(g.on, known)
		}
	}
}

// hasStarted says whether an earlier run has started the pod, and it runs or has ended since. If nothing of it
// runs any more, for example after a reboot, it starts again, in order.
func (r *run) hasStarted(ctx context.Context, d admit.Decision) bool {
	if d.Running && d.Earlier == nil {
		if st, err := r.rt.Status(ctx, d.Pod); err == nil {
			d.Earlier = &v1.Pod{Status: st}
		}
	}
	return d.HasStarted()
}

// add returns a new dependency.
func (o *order) add(on podspec.Dependency, rows map[types.NamespacedName]int, results []Result) *dependency {
	d := &dependency{Dependency: on, left: len(on.Pods)}
	o.awaiting[on.ID()] = d
	for _, name := range on.Pods {
		a := o.awaited[name]
		if a == nil {
			a = &awaited{name: name, reached: map[Until]bool{}}
			o.awaited[name] = a
			if row, ok := rows[name]; ok {
				a.res = &results[row]
			}
			if a.end = a.result(); a.end.outcome != "" { // the run does not start it
				a.bad = true
			}
		}
		a.wanted = append(a.wanted, d)
		d.pods = append(d.pods, a)
		if a.bad {
			d.bad++
		}
	}
	return d
}

// result is the condition of the pod by its result.
func (a *awaited) result() condition {
	if a.res == nil {
		return condition{outcome: Invalid}
	}
	return condition{outcome: a.res.Outcome, message: a.res.Message}
}

// text says what has become of the pod.
func (a *awaited) text(end condition) string {
	text := fmt.Sprintf("pod %q %s", podspec.ShortName(a.name), map[Outcome]string{
		Failed: "failed", TimedOut: "timed out", Rejected: "was rejected", Preempted: "was preempted",
		Invalid: "is invalid", Canceled: "was canceled", Removed: "was removed",
	}[end.outcome])
	if end.message != "" {
		text += ": " + end.message
	}
	return text
}

// dependent is the gate of a pod that depends on others, or on which others depend.
type dependent struct {
	o    *order
	p    *pod
	on   []*dependency
	self *awaited // nil if nothing depends on the pod
	// exempt is a pod that has started in an earlier run: it is left alone.
	exempt  bool
	passed  bool
	waited  bool
	since   time.Time
	waits   string        // for what, in short
	recheck time.Duration // when the pod may reach what others wait for although nothing changes; 0 for never
	cause   *awaited      // of the end of the pod
}

func (g *dependent) open() bool {
	if g.exempt || g.passed {
		return true
	}
	g.o.mu.Lock()
	defer g.o.mu.Unlock()
	if slices.ContainsFunc(g.on, func(d *dependency) bool { return d.left > 0 || d.bad > 0 }) {
		g.waited = true
		return false
	}
	g.passed = true
	g.trace()
	return true
}

// trace records how long the pod has waited.
func (g *dependent) trace() {
	if t := g.p.r.o.Trace; t != nil && g.waited {
		t.Record(g.p.pod.UID, PhaseWaiting, g.since, time.Since(g.since))
	}
	g.waited = false
}

func (g *dependent) verdict() condition {
	if g.exempt || g.p.stage >= synced {
		return condition{}
	}
	g.o.mu.Lock()
	defer g.o.mu.Unlock()
	for _, d := range g.on {
		if d.bad > 0 {
			g.cause = d.firstBad()
			return condition{outcome: Canceled, ended: true, reason: ReasonDependencyFailed, message: g.cause.text(g.cause.end)}
		}
	}
	for _, d := range g.on {
		if d.left > 0 && !g.passed {
			var why string
			g.waits, why = d.describe()
			return condition{reason: reasonWaiting, message: g.waits + why}
		}
	}
	return condition{}
}

// firstBad returns the pod that is to blame for one of the dependency. The lock is held.
func (d *dependency) firstBad() *awaited {
	a := d.pods[slices.IndexFunc(d.pods, func(a *awaited) bool { return a.bad })]
	if a.cause != nil {
		return a.cause
	}
	return a
}

// describe says what is waited for, and why that has not come yet. The lock is held.
func (d *dependency) describe() (text, why string) {
	to := "to be " + string(d.Condition)
	if d.Condition == UntilCompleted {
		to = "to complete"
	}
	a := d.pods[slices.IndexFunc(d.pods, func(a *awaited) bool { return !a.reached[d.Condition] })]
	text, why = fmt.Sprintf("waits for pod %q %s", podspec.ShortName(a.name), to), a.message
	if len(d.pods) > 1 {
		text = fmt.Sprintf("waits for all %d pods of %q %s", len(d.pods), podspec.ShortName(types.NamespacedName{Namespace: d.Namespace, Name: d.Name}), to)
		if why != "" {
			why = fmt.Sprintf("pod %q: %s", podspec.ShortName(a.name), why)
		}
	}
	if why != "" {
		why = ": " + why
	}
	return text, why
}

// changed tells those that depend on the pod how far it has come.
func (g *dependent) changed(c condition) {
	if c.ended {
		g.trace()
	}
	if g.self == nil {
		return
	}
	g.o.mu.Lock()
	defer g.o.mu.Unlock()
	a := g.self
	a.message = c.message
	if c.reason == reasonWaiting {
		a.message = g.waits
	}
	g.recheck = 0
	for _, d := range a.wanted {
		if a.reached[d.Condition] {
			continue
		}
		if c := g.judge(d.Condition); c.recheck > 0 && (g.recheck == 0 || c.recheck < g.recheck) {
			g.recheck = c.recheck
		} else if c.outcome == Succeeded || c.outcome.AtGoal() && d.Condition != UntilCompleted {
			a.reach(d.Condition)
		}
	}
	a.setBad(c, g.cause)
}

// judge returns how far the pod is from a condition that others wait for.
func (g *dependent) judge(until Until) condition {
	goal := g.p.goal
	goal.until, goal.await = until, nil
	return goal.judge(g.p.pod, g.p.status, g.p.history, time.Now())
}

// reach notes that the pod has reached a condition. The lock is held.
func (a *awaited) reach(c Until) {
	a.reached[c] = true
	for _, d := range a.wanted {
		if d.Condition != c {
			continue
		}
		if d.left--; d.left == 0 {
			d.wake()
		}
	}
}

// setBad notes whether the pod has ended otherwise than others want it. One that was given up is tried again
// if the run keeps its pods. The lock is held.
func (a *awaited) setBad(c condition, cause *awaited) {
	was := a.bad
	a.bad, a.cause = c.ended && c.outcome != Succeeded, nil
	if a.bad {
		a.end = c
		if c.reason == ReasonDependencyFailed {
			a.cause = cause
		}
	}
	if a.bad == was {
		return
	}
	for _, d := range a.wanted {
		if a.bad {
			d.bad++
		} else {
			d.bad--
		}
		d.wake()
	}
}

// becauseOf returns the pod that is to blame for the end of this one, nil for an invalid one, and how it
// has ended.
func (g *dependent) becauseOf() (*v1.Pod, Outcome) {
	g.o.mu.Lock()
	defer g.o.mu.Unlock()
	if g.cause.res == nil {
		return nil, Invalid
	}
	return g.cause.res.Pod, g.cause.end.outcome
}

func (d *dependency) wake() {
	for _, wake := range d.wakes {
		wake()
	}
}

// fillCauses has the results of canceled pods say what has become of those that are to blame.
func (r *run) fillCauses() {
	for _, p := range r.pods {
		if p.res.IsDependent() && p.dependent != nil {
			cause := p.dependent.cause
			end := cause.result()
			if end.outcome.AtGoal() {
				end = cause.end // it was tried again
			}
			p.res.Cause, p.res.Message = end.outcome, cause.text(end)
		}
	}
}

// pullAhead pulls the images of the pod while it waits for others. The function that it returns ends that.
func (p *pod) pullAhead(ctx context.Context) (end func()) {
	rt, ok := p.r.rt.(Prefetcher)
	if !ok || p.started() || p.dependent == nil || p.dependent.open() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		rt.PullAhead(ctx, p.pod)
	}()
	return func() {
		cancel()
		<-done
	}
}

// awaitOthers waits until a pod that was given up because of others may start all the same, and returns
// false when the round is over before that.
func (p *pod) awaitOthers(round context.Context) bool {
	for p.condemned() {
		select {
		case <-p.woken:
		case <-round.Done():
			return false
		}
	}
	p.cond.ended = false
	return true
}
