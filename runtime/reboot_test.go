package runtime_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
)

func TestLaterProcessContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
		first, cancel := context.WithCancel(t.Context())
		if err := n.pods(first, t).Sync(first, pod); err != nil {
			t.Fatal(err)
		}
		cancel()
		n.engine.Kill(engine.ContainerID("uid-1", "c1", 0), 9)

		p := n.pods(t.Context(), t)
		listed, err := p.List(t.Context())
		if err != nil || len(listed) != 1 {
			t.Fatalf("List = %v, %v", listed, err)
		}
		wantStates(t.Context(), t, p, listed[0], "c0=running", "c1=exit9")
		if err := p.Sync(t.Context(), listed[0]); err != nil {
			t.Fatal(err)
		}
		s := wantStates(t.Context(), t, p, pod, "c0=running", "c1=running")
		if s.ContainerStatuses[1].RestartCount != 1 || s.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("restarts = %d, %d; want 0, 1", s.ContainerStatuses[0].RestartCount, s.ContainerStatuses[1].RestartCount)
		}
	})
}

func TestReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		first, cancel := context.WithCancel(t.Context())
		if err := n.pods(first, t).Sync(first, pod); err != nil {
			t.Fatal(err)
		}
		cancel()
		n.engine.Lose()
		n.sandboxes.Lose()
		p := n.pods(t.Context(), t)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		s := wantStates(t.Context(), t, p, pod, "c0=running")
		if last := s.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 137 {
			t.Errorf("last termination = %+v, want 137", last)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.left(t)
	})
}

// After a reboot the init containers run again, in order, before the others.
func TestRebootRunsInitContainersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		for _, name := range []string{"i", "j"} {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{
				Name: name, Image: boxImage, Args: []string{"sleep", "1s"}, ImagePullPolicy: v1.PullIfNotPresent,
			})
		}
		converge := func(ctx context.Context, p *runtime.Pods, want ...string) {
			if err := p.Sync(ctx, pod); err != nil {
				t.Fatal(err)
			}
			wantStates(ctx, t, p, pod, want...)
			time.Sleep(2 * time.Second)
		}
		first, cancel := context.WithCancel(t.Context())
		p := n.pods(first, t)
		converge(first, p, "i=running", "j=waiting PodInitializing", "c0=waiting PodInitializing")
		converge(first, p, "i=exit0", "j=running", "c0=waiting PodInitializing")
		converge(first, p, "i=exit0", "j=exit0", "c0=running")
		cancel()
		n.engine.Lose()
		n.sandboxes.Lose()
		converge(t.Context(), n.pods(t.Context(), t), "i=running", "j=exit0", "c0=exit137")
		// What a process has seen, the next one knows.
		p = n.pods(t.Context(), t)
		converge(t.Context(), p, "i=exit0", "j=running", "c0=exit137")
		converge(t.Context(), p, "i=exit0", "j=exit0", "c0=running")
	})
}

func TestCompletedPodIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "exit 3 the end")
		for range 3 {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		s := wantStates(t.Context(), t, p, pod, "c0=exit3")
		if s.Phase != v1.PodFailed || s.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("phase %s, %d restarts", s.Phase, s.ContainerStatuses[0].RestartCount)
		}
		if left := n.sandboxes.Left(); len(left) > 0 {
			t.Errorf("a finished pod keeps its sandbox: %v", left)
		}
	})
}
