package runtime_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
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

// TestRefusedStart: what an OCI runtime refuses to start has ended. The restart policy and the kubelet's
// back-off decide what comes next, and nothing is tried again before that.
func TestRefusedStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy v1.RestartPolicy
		phase  v1.PodPhase
		states []string // after each Sync, a second after the one before
	}{
		{v1.RestartPolicyNever, v1.PodFailed, []string{"c0=exit128", "c0=exit128"}},
		{v1.RestartPolicyOnFailure, v1.PodRunning, []string{"c0=waiting RunContainerError", "c0=waiting RunContainerError", "c0=waiting CrashLoopBackOff"}},
	} {
		t.Run(string(tt.policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.engine.Program = func(engine.ContainerConfig) enginetest.Behavior {
					return enginetest.Behavior{Err: &failure.Error{Why: failure.ReasonRunError, Ended: true, Err: errors.New("operation not permitted")}}
				}
				p := n.pods(t.Context(), t)
				pod := testPod(tt.policy, "sleep")
				for i, want := range tt.states {
					err := p.Sync(t.Context(), pod)
					if tries := want == "c0=waiting RunContainerError"; failure.IsPermanent(err) || tries && failure.RetryAfter(err) != time.Second {
						t.Errorf("Sync %d: %v: permanent %v, again after %s", i, err, failure.IsPermanent(err), failure.RetryAfter(err))
					}
					s := wantStates(t.Context(), t, p, pod, want)
					end := podspec.LastTermination(s.ContainerStatuses[0])
					if s.Phase != tt.phase || end == nil || end.Reason != "StartError" || end.ExitCode != 128 || end.Message != "operation not permitted" {
						t.Errorf("phase %s, ended %+v", s.Phase, end)
					}
					if got := int(s.ContainerStatuses[0].RestartCount); got != min(i, 1) && tt.policy != v1.RestartPolicyNever {
						t.Errorf("Sync %d: %d restarts", i, got)
					}
					time.Sleep(time.Second)
				}
				if err := p.Stop(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				n.left(t)
			})
		})
	}
}
