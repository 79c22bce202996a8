package runtime_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
)

// TestLimitRestarts: a container that may not be restarted any more is left as it has ended, whoever
// has ended it, until a later process may start it.
func TestLimitRestarts(t *testing.T) {
	for _, tt := range []struct {
		name string
		pod  func(*v1.Pod)
		end  func(t *testing.T, n *node, p *runtime.Pods, pod *v1.Pod)
	}{
		{
			"by a probe",
			func(pod *v1.Pod) { pod.Spec.Containers[0].LivenessProbe = execProbe("exit", "1") },
			func(*testing.T, *node, *runtime.Pods, *v1.Pod) { time.Sleep(4 * time.Second) },
		},
		{
			"by itself, between two looks", func(*v1.Pod) {},
			func(t *testing.T, n *node, _ *runtime.Pods, pod *v1.Pod) {
				n.engine.Kill(n.containers(t, pod)["c0"].ID, 9)
			},
		},
		{
			"with its sandbox", func(*v1.Pod) {},
			func(_ *testing.T, n *node, _ *runtime.Pods, _ *v1.Pod) { n.sandboxes.Lose() },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.pods(t.Context(), t)
				pod := testPod(v1.RestartPolicyAlways, "sleep")
				tt.pod(pod)
				p.LimitRestarts(pod, map[string]int{"c0": 0})
				for range 3 {
					if err := p.Sync(t.Context(), pod); err != nil {
						t.Fatal(err)
					}
					tt.end(t, n, p, pod)
				}
				s := wantStates(t.Context(), t, p, pod, "c0=waiting CrashLoopBackOff")
				if cs := s.ContainerStatuses[0]; cs.RestartCount != 0 || cs.LastTerminationState.Terminated == nil || s.Phase != v1.PodRunning {
					t.Errorf("phase %s, %+v; want one instance, which has ended", s.Phase, cs)
				}
				if err := n.pods(t.Context(), t).Sync(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				if s := wantStates(t.Context(), t, p, pod, "c0=running"); s.ContainerStatuses[0].RestartCount != 1 {
					t.Errorf("%+v, want the next instance", s.ContainerStatuses[0])
				}
				if err := p.Stop(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
