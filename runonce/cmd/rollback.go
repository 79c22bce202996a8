package cmd

import (
	"cmp"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
)

// defaultTrial is how long a changed pod may take to reach its goal. It is that of a Deployment
// (progressDeadlineSeconds).
const defaultTrial = 10 * time.Minute

// rollbackFlags say whether the former definition of a pod runs again when another one does not reach its goal.
type rollbackFlags struct {
	rollback bool
	timeout  time.Duration
	limit    time.Duration // timeout on the command line; elsewhere that is the deadline of a run
}

func (f *rollbackFlags) flags() []cli.Flag {
	return []cli.Flag{
		boolFlag(&f.rollback, categoryRun, "run a changed pod as it was before if it misses its goal", "rollback"),
		durationFlag(&f.timeout, categoryRun, "with --rollback, wait `DURATION` for a pod, 0 for no limit", "timeout", defaultTrial),
	}
}

func (f *rollbackFlags) check() error {
	if f.limit != defaultTrial && !f.rollback {
		return usagef("--timeout is how long a changed pod may take: it needs --rollback")
	}
	return nil
}

// definition is a pod of the manifests, with the objects to which it refers.
type definition struct {
	pod *v1.Pod
	set *manifests.Set
}

// failedDefinition is a definition that has not reached its goal, and is not tried again.
type failedDefinition struct {
	uid    types.UID
	reason string
	why    string
	told   bool // it was said
}

func (d failedDefinition) message() string {
	return fmt.Sprintf("the new definition has failed: %s: %s; the former one runs", d.reason, d.why)
}

// trial is a changed pod that has not reached its goal yet.
type trial struct {
	pod   *v1.Pod
	timer *time.Timer // nil before the pod is started
	last  string      // message of its last event
}

func (t *trial) stop() {
	if t != nil && t.timer != nil {
		t.timer.Stop()
	}
}

// rollbacks know the definitions with which pods have reached their goal, and have these run again in place of
// those that fail.
type rollbacks struct {
	limit time.Duration // of a trial, 0 for none
	due   chan struct{} // gets a value when a definition has failed; values coalesce

	mu     sync.Mutex
	set    *manifests.Set // of the current plan
	good   map[types.NamespacedName]definition
	bad    map[types.NamespacedName]failedDefinition // of pods that have a good one
	trials map[types.NamespacedName]*trial
}

func newRollbacks(limit time.Duration) *rollbacks {
	return &rollbacks{
		limit: limit, due: make(chan struct{}, 1),
		good: map[types.NamespacedName]definition{}, bad: map[types.NamespacedName]failedDefinition{},
	}
}

// learn takes the definition of a pod of an earlier input for one that has reached its goal, if what it refers to has
// not changed since.
func (r *rollbacks) learn(pod *v1.Pod, set *manifests.Set) {
	if !set.Defines(pod) {
		return
	}
	own := pod.DeepCopy()
	own.Spec.EphemeralContainers = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.good[podspec.NameOf(pod)] = definition{own, set}
}

// apply puts former definitions into the set in place of those that have failed. What is no longer in the set, or has
// changed, is forgotten.
func (r *rollbacks) apply(set *manifests.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[types.NamespacedName]bool{}
	for i, pod := range set.Pods {
		name := podspec.NameOf(pod)
		names[name] = true
		switch failed, ok := r.bad[name]; {
		case !ok:
		case failed.uid != pod.UID:
			delete(r.bad, name)
		default:
			set.Pods[i] = r.good[name].from(pod)
		}
	}
	if len(set.Invalid) > 0 {
		return // it may be there
	}
	maps.DeleteFunc(r.good, func(name types.NamespacedName, _ definition) bool { return !names[name] })
	maps.DeleteFunc(r.bad, func(name types.NamespacedName, _ failedDefinition) bool { return !names[name] })
}

// from returns the pod as it is defined here, in the place of another definition in the input.
func (d definition) from(other *v1.Pod) *v1.Pod {
	own := d.pod.DeepCopy()
	for _, key := range podspec.InputAnnotations {
		delete(own.Annotations, key)
		if value, ok := other.Annotations[key]; ok {
			own.Annotations[key] = value
		}
	}
	return own
}

// refuse notes the definitions that the plan rejects, and says whether there is a former one of any of them.
func (r *rollbacks) refuse(plan admit.Plan) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	some := false
	for _, d := range plan.Decisions {
		if d.Verdict == admit.Rejected && r.replaces(d.Pod) {
			r.bad[podspec.NameOf(d.Pod)] = failedDefinition{uid: d.Pod.UID, reason: d.Reason, why: d.Message}
			some = true
		}
	}
	return some
}

// replaces says whether another definition of the pod has reached its goal. The caller holds the lock.
func (r *rollbacks) replaces(pod *v1.Pod) bool {
	good, ok := r.good[podspec.NameOf(pod)]
	return ok && good.pod.UID != pod.UID
}

// begin notes which pods of a plan are tried. It returns them, except for those that the plan before has tried, with
// their former definitions.
func (r *rollbacks) begin(plan admit.Plan, set *manifests.Set) map[*v1.Pod]*v1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, formers := r.trials, map[*v1.Pod]*v1.Pod{}
	r.set, r.trials = set, map[types.NamespacedName]*trial{}
	for _, d := range plan.Decisions {
		name := podspec.NameOf(d.Pod)
		switch t := before[name]; {
		case !d.Runs():
		case !r.replaces(d.Pod):
			if _, ok := r.good[name]; ok && r.bad[name].uid == "" {
				r.good[name] = definition{d.Pod, set} // the same, but the objects of an earlier input need not be kept
			}
		case t != nil && t.pod.UID == d.Pod.UID:
			r.trials[name] = t
			delete(before, name)
		default:
			r.trials[name] = &trial{pod: d.Pod}
			formers[d.Pod] = r.good[name].pod
			if d.Running {
				r.start(r.trials[name])
			}
		}
	}
	for _, t := range before {
		t.stop()
	}
	return formers
}

// formers returns the former definitions of the pods that are tried.
func (r *rollbacks) formers() (pods []*v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.trials {
		pods = append(pods, r.good[name].pod)
	}
	return pods
}

// start gives a pod its time. The caller holds the lock.
func (r *rollbacks) start(t *trial) {
	if t.timer != nil || r.limit == 0 {
		return
	}
	t.timer = time.AfterFunc(r.limit, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fail(t, "Timeout", fmt.Sprintf("it has not reached its goal within %s: %s", r.limit, cmp.Or(t.last, "it is starting")))
	})
}

// fail ends a trial, if it goes on, without success. The caller holds the lock.
func (r *rollbacks) fail(t *trial, reason, why string) {
	name := podspec.NameOf(t.pod)
	if r.trials[name] != t {
		return
	}
	r.end(t)
	r.bad[name] = failedDefinition{uid: t.pod.UID, reason: reason, why: why}
	select {
	case r.due <- struct{}{}:
	default:
	}
}

// end ends a trial. The caller holds the lock.
func (r *rollbacks) end(t *trial) {
	t.stop()
	delete(r.trials, podspec.NameOf(t.pod))
}

// note follows the pods of the plan. It says whether a pod has reached its goal that replaces another definition.
func (r *rollbacks) note(e runonce.Progress) (reached bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := podspec.NameOf(e.Pod)
	t := r.trials[name]
	if t != nil && t.pod.UID != e.Pod.UID {
		return false // the one that it replaces
	}
	switch outcome := runonce.Outcome(e.State); {
	case outcome.AtGoal():
		return r.succeed(e.Pod)
	case t == nil:
	case outcome == runonce.Failed:
		r.fail(t, cmp.Or(e.Reason, e.State), e.Message)
	case outcome == runonce.Removed || outcome == runonce.Preempted: // that was meant
		r.end(t)
	case e.State == "Starting" || e.State == "Pulling":
		r.start(t)
	case e.Message != "":
		t.last = e.Message
	}
	return false
}

// succeed takes a pod of the plan for good, and says whether another definition of it was. The caller holds the lock.
func (r *rollbacks) succeed(pod *v1.Pod) bool {
	name := podspec.NameOf(pod)
	good, ok := r.good[name]
	if ok && good.pod.UID == pod.UID {
		return false
	}
	r.good[name] = definition{pod, r.set}
	delete(r.bad, name) // it is late, but still there
	if t := r.trials[name]; t != nil {
		r.end(t)
	}
	return ok
}

// retry has what has failed tried again.
func (r *rollbacks) retry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.bad)
}

// standsIn says whether the pod is a former definition in the place of another one, and returns that, which is told by this,
// and the objects to which the pod refers.
func (r *rollbacks) standsIn(pod *v1.Pod) (failed failedDefinition, objects *manifests.Set, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := podspec.NameOf(pod)
	good := r.good[name]
	if failed, ok = r.bad[name]; !ok || good.pod.UID != pod.UID {
		return failedDefinition{}, nil, false
	}
	told := failed
	told.told = true
	r.bad[name] = told
	return failed, good.set, true
}

// areDue says whether any of the results is of a definition that has failed, in whose place the former one is to run.
func (r *rollbacks) areDue(results []runonce.Result) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range results {
		if failed, ok := r.bad[podspec.NameOf(res.Pod)]; ok && failed.uid == res.Pod.UID {
			return true
		}
	}
	return false
}
