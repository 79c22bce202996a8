package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/podstate"
)

// A process that syncs nothing has to probe to know which containers are ready.
func TestProbeOfEarlierRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep", "sleep", "sleep", "sleep")
		cs := pod.Spec.Containers
		cs[0].ReadinessProbe = execProbe("exit", "0")
		cs[1].ReadinessProbe = execProbe("exit", "1", "not", "yet")
		cs[2].StartupProbe, cs[2].ReadinessProbe = execProbe("exit", "1", "still", "starting"), execProbe("exit", "0")
		cs[3].ReadinessProbe = execProbe("exit", "0")
		cs[3].ReadinessProbe.InitialDelaySeconds = 3600
		ctx, cancel := context.WithCancel(t.Context())
		if err := n.pods(ctx, t).Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		cancel()
		later := n.pods(t.Context(), t)
		wantReady := func(started, ready []bool, message string) {
			t.Helper()
			pods, err := later.List(t.Context())
			if err != nil || len(pods) != 1 {
				t.Fatalf("%d pods, %v", len(pods), err)
			}
			var s, r []bool
			for _, c := range pods[0].Status.ContainerStatuses {
				s, r = append(s, *c.Started), append(r, c.Ready)
			}
			if diff := cmp.Diff([][]bool{started, ready}, [][]bool{s, r}); diff != "" {
				t.Error(diff)
			}
			for _, c := range pods[0].Status.Conditions {
				if c.Type == v1.ContainersReady && c.Message != message {
					t.Errorf("message %q, want %q", c.Message, message)
				}
			}
		}
		wantReady([]bool{true, true, false, true, true}, []bool{false, false, false, false, true},
			"containers with unready status: [c0 c1 c2 c3]")
		if err := later.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantReady([]bool{true, true, false, true, true}, []bool{true, false, false, false, true},
			`containers with unready status: [c1 c2 c3]; container "c1": readiness probe: not yet; container "c2": startup probe: still starting`)
		time.Sleep(2 * time.Hour)
		last := n.pods(t.Context(), t)
		if err := last.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		later = last
		wantReady([]bool{true, true, false, true, true}, []bool{true, false, false, true, true},
			`containers with unready status: [c1 c2]; container "c1": readiness probe: not yet; container "c2": startup probe: still starting`)
		if err := last.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}

func execProbe(args ...string) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: append([]string{"/bin/box"}, args...)}},
		PeriodSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1, TimeoutSeconds: 1,
	}
}

func TestProbesDecideOnReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("exit", "0")
		pod.Spec.Containers[1].ReadinessProbe = execProbe("exit", "1", "not", "yet")
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		s := wantStates(t.Context(), t, p, pod, "c0=running", "c1=running")
		if !s.ContainerStatuses[0].Ready || s.ContainerStatuses[1].Ready {
			t.Errorf("ready: %t, %t; want only the first", s.ContainerStatuses[0].Ready, s.ContainerStatuses[1].Ready)
		}
		for _, c := range s.Conditions {
			want := `containers with unready status: [c1]; container "c1": readiness probe: not yet`
			if c.Type == v1.ContainersReady && c.Message != want {
				t.Errorf("message %q, want %q", c.Message, want)
			}
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}

// A container is probed as soon as it runs, even while others are being started.
func TestProbesDoNotWaitForOtherContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("exit", "0")
		pod.Spec.Containers[1].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}}
		synced := make(chan error)
		go func() { synced <- p.Sync(t.Context(), pod) }()
		time.Sleep(5 * time.Second)
		if s := wantStates(t.Context(), t, p, pod, "c0=running", "c1=running"); !s.ContainerStatuses[0].Ready {
			t.Errorf("not ready: %+v", s.ContainerStatuses[0])
		}
		if err := <-synced; err != nil {
			t.Error(err)
		}
		if s := wantStates(t.Context(), t, p, pod, "c0=running", "c1=running"); !s.ContainerStatuses[0].Ready {
			t.Errorf("not ready any more: %+v", s.ContainerStatuses[0])
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}

// The message of a probe stays after the container was killed for it.
func TestProbeThatKilledIsNamed(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyAlways} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			p := n.pods(t.Context(), t)
			pod := testPod(policy, "sleep")
			pod.Spec.Containers[0].LivenessProbe = execProbe("exit", "1", "not", "well")
			pod.Spec.Containers[0].ReadinessProbe = execProbe("exit", "1")
			pod.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 3600
			for range 3 { // the second instance waits to be started again
				_ = p.Sync(t.Context(), pod)
				time.Sleep(4 * time.Second)
			}
			_ = p.Sync(t.Context(), pod)
			s, err := p.Status(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range s.Conditions {
				if want := `container "c0": liveness probe: not well`; c.Type == v1.ContainersReady && !strings.HasSuffix(c.Message, want) {
					t.Errorf("%s: message %q, want %q; %v", policy, c.Message, want, states(s))
				}
			}
			if err := p.Stop(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLivenessRestartsAndWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].LivenessProbe = execProbe("exit", "1")
		changes, err := p.Changes(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		restarts := int32(0)
		for restarts == 0 {
			<-changes
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			s, err := p.Status(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			restarts = s.ContainerStatuses[0].RestartCount
		}
		s := wantStates(t.Context(), t, p, pod, "c0=running")
		if last := s.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 143 {
			t.Errorf("last termination = %+v, want it stopped by SIGTERM", last)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLivenessBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].LivenessProbe = execProbe("exit", "1")
		pod.Spec.Containers[0].LivenessProbe.FailureThreshold = 1
		// Started, then killed and restarted at once, twice: the back-off counts from the end of
		// the instance before, and there is none after the first.
		for range 3 {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		var s *runtime.SyncError
		for range 2 { // killed within the back-off, which that does not make longer
			if err := p.Sync(t.Context(), pod); !errors.As(err, &s) || s.Reason() != podstate.ReasonCrashLoopBackOff || s.RetryAfter() > 10*time.Second {
				t.Fatalf("after the third kill: %v, want a back-off", err)
			}
		}
		wantStates(t.Context(), t, p, pod, "c0=waiting CrashLoopBackOff")
		time.Sleep(s.RetryAfter())
		for range 2 { // it runs for longer than its back-off now: it is restarted at once
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			wantStates(t.Context(), t, p, pod, "c0=running")
			time.Sleep(30 * time.Second)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}
