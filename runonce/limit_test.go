package runonce_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
)

// limited is a runtime that is told how often it may restart containers.
type limited struct {
	*fake
	most map[string]map[string]int // the last, by pod
}

func (l *limited) LimitRestarts(pod *v1.Pod, most map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.most == nil {
		l.most = map[string]map[string]int{}
	}
	l.most[pod.Name] = maps.Clone(most)
}

// TestLimitRestarts: the runtime may restart each container as often as the run, or the pod's Job,
// allows from now on.
func TestLimitRestarts(t *testing.T) {
	t.Parallel()
	earlier := with(v1.PodRunning, restarted(up(), 3))
	down := with(v1.PodRunning, crashed(3))
	job := func(rules string) *v1.Pod { return jobPod("web", v1.RestartPolicyOnFailure, rules) }
	for _, tt := range []struct {
		name    string
		pod     *v1.Pod
		before  *v1.PodStatus // from an earlier run
		options runonce.Options
		want    map[string]int
	}{
		{"default", newPod("web", v1.RestartPolicyAlways), nil, runonce.Options{}, map[string]int{"c": 3}},
		{"none", newPod("web", v1.RestartPolicyAlways), nil, runonce.Options{MaxRestarts: new(0)}, map[string]int{"c": 0}},
		{"runs since an earlier run", newPod("web", v1.RestartPolicyAlways), &earlier, runonce.Options{MaxRestarts: new(1)}, map[string]int{"c": 4}},
		{"has ended before this run", newPod("web", v1.RestartPolicyAlways), &down, runonce.Options{MaxRestarts: new(1)}, map[string]int{"c": 5}},
		{"kept without a limit", newPod("web", v1.RestartPolicyAlways), nil, runonce.Options{Keep: make(chan struct{}), Timeout: time.Second}, map[string]int{}},
		{"Job", job(`"backoffLimit": 2`), nil, runonce.Options{MaxRestarts: new(0)}, map[string]int{"c": 2}},
		{"Job with restarts", job(`"backoffLimit": 5`), &earlier, runonce.Options{}, map[string]int{"c": 5}},
		{"Job with more restarts than it allows", job(`"backoffLimit": 2`), &earlier, runonce.Options{}, map[string]int{"c": 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				options := tt.options
				if options.Keep != nil {
					options.Keep = make(chan struct{}) // of this bubble
				}
				rt := &limited{fake: &fake{scripts: map[string]script{"web": {before: tt.before, timeline: []moment{{0, running()}}}}}}
				if tt.before != nil {
					rt.scripts["web"] = script{before: tt.before, timeline: []moment{{0, *tt.before}, {time.Second, running()}}}
				}
				plan := admit.Plan{Decisions: []admit.Decision{{Pod: tt.pod, Verdict: admit.Admitted, Running: tt.before != nil}}}
				runonce.Run(t.Context(), rt, plan, options)
				if diff := cmp.Diff(tt.want, rt.most["web"]); diff != "" {
					t.Errorf("restarts (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestRefusedRestart: a container that waits for a restart which is not allowed has crashed once too
// often, whatever it has exited with.
func TestRefusedRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := crashed(1)
		refused.ContainerID = "c-1"
		refused.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ContainerID: "c-1"}
		rt := &fake{scripts: map[string]script{"web": {timeline: []moment{{0, running()}, {time.Second, with(v1.PodRunning, refused)}}}}}
		o := runonce.Options{Until: runonce.UntilCompleted, MaxRestarts: new(1)}
		got := runonce.Run(t.Context(), rt, admitted(newPod("web", v1.RestartPolicyOnFailure)), o)[0]
		want(t, "outcome", got.Outcome, runonce.Failed)
		want(t, "message", got.Message, `container "c" exited with code 0; gave up after 1 restart`)
	})
}

// TestHookOfRestartedContainer: an instance whose postStart hook runs has not crashed.
func TestHookOfRestartedContainer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hooked := waiting("ContainerCreating")
		hooked.ContainerID, hooked.RestartCount = "c-1", 1
		hooked.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ContainerID: "c-0", ExitCode: 1}
		rt := &fake{scripts: map[string]script{"web": {timeline: []moment{
			{0, running()}, {time.Second, with(v1.PodRunning, hooked)}, {2 * time.Second, with(v1.PodRunning, restarted(up(), 1))},
		}}}}
		o := runonce.Options{Settle: 3 * time.Second, MaxRestarts: new(1)}
		got := runonce.Run(t.Context(), rt, admitted(newPod("web", v1.RestartPolicyAlways)), o)[0]
		want(t, "outcome", got.Outcome, runonce.Running)
	})
}
