package runonce_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
)

// preemptedError is the error of a runtime for a pod that another run has preempted.
type preemptedError struct {
	syncError
	by *v1.Pod
}

func (e preemptedError) PreemptedBy() *v1.Pod { return e.by }

// TestPreemptedByAnotherRun: the pod is reported as preempted, however it ended, and is not started
// again.
func TestPreemptedByAnotherRun(t *testing.T) {
	t.Parallel()
	boss := newPod("boss", v1.RestartPolicyAlways)
	for _, c := range []struct {
		name  string
		then  v1.PodStatus // after a minute
		by    *v1.Pod
		want  string
		syncs int
	}{
		{"gone", v1.PodStatus{Phase: v1.PodPending}, boss, "Preempted Preempting", 2},
		{"ended with 0", with(v1.PodSucceeded, ended(0)), boss, "Preempted Preempting", 2},
		{"ended with 143", with(v1.PodFailed, ended(143)), boss, "Preempted Preempting", 2},
		{"stopped, ended with 0", with(v1.PodSucceeded, ended(0)), nil, "Failed Stopped", 2},
		{"stopped for another reason", v1.PodStatus{Phase: v1.PodPending}, nil, "Failed Stopped", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pod := newPod("web", v1.RestartPolicyNever)
				rt := &fake{scripts: map[string]script{"web": {
					timeline: []moment{{0, running()}, {time.Minute, c.then}},
					sync: func(n int) error {
						if n > 1 {
							return preemptedError{syncError{"stopped by another process", "Stopped", true, 0}, c.by}
						}
						return nil
					},
				}}}
				got := runonce.Run(t.Context(), rt, admitted(pod), runonce.Options{Retry: runonce.Backoff{Factor: 1}, Until: runonce.UntilCompleted})
				want(t, "outcome", outcomes(got)[0], c.want)
				want(t, "by", got[0].By, c.by)
				want(t, "syncs", rt.pods[pod.UID].syncs, c.syncs)
				disrupted := slices.ContainsFunc(got[0].Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
				want(t, "condition DisruptionTarget", disrupted, c.by != nil)
			})
		})
	}
}

// TestRemovedFromKeptPods: what another process has stopped is no failure of a run that keeps its pods,
// however the pod ended, and is not started again. A preempted pod is preempted.
func TestRemovedFromKeptPods(t *testing.T) {
	t.Parallel()
	boss := newPod("boss", v1.RestartPolicyAlways)
	stopped := with(v1.PodFailed, ended(0))
	stopped.Reason = "Stopped"
	for _, c := range []struct {
		name string
		then v1.PodStatus // after a minute
		by   *v1.Pod
		want string
	}{
		{"gone", v1.PodStatus{Phase: v1.PodPending}, nil, "Removed Stopped"},
		{"ended with 0", with(v1.PodSucceeded, ended(0)), nil, "Removed Stopped"},
		{"ended with 143", with(v1.PodFailed, ended(143)), nil, "Removed Stopped"},
		{"is being stopped", stopped, nil, "Removed Stopped"},
		{"preempted", stopped, boss, "Preempted Preempting"},
		{"failed", with(v1.PodFailed, ended(1)), &v1.Pod{}, "Failed Error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pod, over := newPod("web", v1.RestartPolicyNever), make(chan struct{})
				time.AfterFunc(time.Hour, func() { close(over) })
				rt := &fake{scripts: map[string]script{"web": {
					timeline: []moment{{0, running()}, {time.Minute, c.then}},
					sync: func(n int) error {
						if n > 1 && c.want != "Failed Error" {
							return preemptedError{syncError{"stopped by another process", "Stopped", true, 0}, c.by}
						}
						return nil
					},
				}}}
				var failed []string
				got := runonce.Run(t.Context(), rt, admitted(pod), runonce.Options{Keep: over, Progress: func(p runonce.Progress) {
					if p.State == "Failed" {
						failed = append(failed, p.Message)
					}
				}})
				want(t, "outcome", outcomes(got)[0], c.want)
				want(t, "syncs", rt.pods[pod.UID].syncs, 2)
				if len(failed) > 0 && strings.HasPrefix(c.want, "Removed") {
					t.Errorf("reported as failed: %v", failed)
				}
			})
		})
	}
}

// TestAfterStops: it is called when the last pod that the plan stops has stopped, and nothing has
// started by then.
func TestAfterStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := &fake{scripts: map[string]script{"web": runs(), "old": {stopTakes: time.Minute}}}
		web, old := newPod("web", v1.RestartPolicyAlways), newPod("old", v1.RestartPolicyAlways)
		plan := admit.Plan{Decisions: []admit.Decision{
			{Pod: web, Verdict: admit.Admitted}, {Pod: old, Verdict: admit.Preempted, Running: true, By: web},
		}}
		var then []string
		runonce.Run(t.Context(), rt, plan, runonce.Options{Retry: runonce.Backoff{Factor: 1}, AfterStops: func() { then = slices.Clone(rt.calls) }})
		if !slices.Equal(then, []string{"stop old", "stopped old"}) {
			t.Errorf("by then: %v", then)
		}
	})
}
