package runtime_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestFailedStart: a container whose program does not exist has ended, with the code and the
// reason of CRI runtimes, also for the next process. Its restart policy applies.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy v1.RestartPolicy
		phase  v1.PodPhase
		states []string
		later  []string
	}{
		{v1.RestartPolicyNever, v1.PodFailed, []string{"c0=exit128", "c1=exit0"}, []string{"c0=exit128", "c1=exit0"}},
		{v1.RestartPolicyAlways, v1.PodRunning, []string{"c0=waiting RunContainerError", "c1=exit0"}, []string{"c0=waiting RunContainerError", "c1=exit0"}},
	} {
		t.Run(string(tt.policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.pods(t.Context(), t)
				pod := testPod(tt.policy, "sleep", "exit 0")
				pod.Spec.Containers[0].Command = []string{"/bin/none"}
				if err := p.Sync(t.Context(), pod); err == nil {
					t.Error("the start of a missing program is no error")
				}
				time.Sleep(time.Second)
				s := wantStates(t.Context(), t, p, pod, tt.states...)
				end := s.ContainerStatuses[0].State.Terminated
				if end == nil {
					end = s.ContainerStatuses[0].LastTerminationState.Terminated
				}
				if s.Phase != tt.phase || end == nil || end.Reason != "StartError" || end.ExitCode != 128 || end.Message == "" {
					t.Errorf("phase %s, ended %+v", s.Phase, end)
				}
				p = n.pods(t.Context(), t)
				wantStates(t.Context(), t, p, pod, tt.later...)
				pod.Spec.Containers[0].Command = nil
				if err := p.Sync(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				s, err := p.Status(t.Context(), pod)
				if err != nil {
					t.Fatal(err)
				}
				if got := s.ContainerStatuses[0]; tt.policy == v1.RestartPolicyAlways && (got.State.Running == nil || got.RestartCount != 1 || got.LastTerminationState.Terminated == nil) {
					t.Errorf("started again: %+v", got)
				}
				if left := n.sandboxes.Left(); tt.policy == v1.RestartPolicyNever && len(left) > 0 {
					t.Errorf("a failed pod keeps its sandbox: %v", left)
				}
				if err := p.Stop(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				n.left(t)
			})
		})
	}
}

// TestRunningSandbox: each process makes sure once that a pod that runs still has what its sandbox
// consists of, such as the rules of its host ports.
func TestRunningSandbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		if err := n.pods(t.Context(), t).Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		calls := 0
		n.sandboxes.Err = func(*v1.Pod) error {
			calls++
			return nil
		}
		p := n.pods(t.Context(), t)
		for range 2 {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		if calls != 1 {
			t.Errorf("%d calls, want 1", calls)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}
