package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/podstate"
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
		n.engine.Kill(n.containers(t, pod)["c1"].ID, 9)

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

func TestChangesWakeTheRightWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod, other := testPod(v1.RestartPolicyNever, "sleep 1s"), testPod(v1.RestartPolicyNever, "sleep")
		other.UID = "uid-2"
		ctx, cancel := context.WithCancel(t.Context())
		mine, err := p.Changes(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := p.Changes(ctx, other)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		<-mine // started
		<-mine // exited
		select {
		case <-theirs:
			t.Error("another pod's change woke the waiter")
		default:
		}
		cancel()
		if _, open := <-mine; open {
			t.Error("the channel is open after the context is done")
		}
	})
}

func TestTerminationMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep 1s")
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(n.root, "pods", "uid-1", "termination-log.c0.0")
		if err := os.WriteFile(path, []byte(strings.Repeat("x", 5000)+"the end"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		s := wantStates(t.Context(), t, p, pod, "c0=exit0")
		msg := s.ContainerStatuses[0].State.Terminated.Message
		if len(msg) != 4096 || !strings.HasSuffix(msg, "the end") {
			t.Errorf("message of %d bytes, ends in %q; want the last 4096", len(msg), msg[max(0, len(msg)-10):])
		}
	})
}

// A pod that is restarted for months has the termination messages of two instances, not of all.
func TestTerminationMessagesDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "exit 1")
		const restarts = 5
		for i := range restarts + 1 {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(n.root, "pods", "uid-1", fmt.Sprintf("termination-log.c0.%d", i))
			if err := os.WriteFile(path, fmt.Append(nil, "message ", i), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
		}
		files, err := filepath.Glob(filepath.Join(n.root, "pods", "uid-1", "termination-log.*"))
		if err != nil || len(files) != 2 {
			t.Errorf("files %q, %v; want two", files, err)
		}
		st, err := p.Status(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		cs := st.ContainerStatuses[0]
		now, before := cs.State.Terminated, cs.LastTerminationState.Terminated
		if cs.RestartCount != restarts || now == nil || now.Message != "message 5" || before == nil || before.Message != "message 4" {
			t.Errorf("%d restarts, terminated %+v, before that %+v", cs.RestartCount, now, before)
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
		if s := wantStates(t.Context(), t, p, pod, "c0=running", "c1=waiting ContainerCreating"); !s.ContainerStatuses[0].Ready {
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

func TestActiveDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		deadline := int64(60)
		pod.Spec.ActiveDeadlineSeconds = &deadline
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // for the event of the start, which nothing waits for
		changes, err := p.Changes(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		<-changes
		if waited := time.Since(begin); waited != time.Minute {
			t.Errorf("woken after %s, want the deadline of 1m", waited)
		}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		s := wantStates(t.Context(), t, p, pod, "c0=exit143")
		if s.Phase != v1.PodFailed || s.Reason != "DeadlineExceeded" {
			t.Errorf("phase %s, reason %s", s.Phase, s.Reason)
		}
	})
}

func TestTerminationMessageFallsBackToLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "exit 3 the end", "exit 0 well done", "exit 3 unasked")
		pod.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
		pod.Spec.Containers[1].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s := wantStates(t.Context(), t, p, pod, "c0=exit3", "c1=exit0", "c2=exit3")
		for i, want := range []string{"the end\n", "", ""} {
			if got := s.ContainerStatuses[i].State.Terminated.Message; got != want {
				t.Errorf("message of c%d = %q, want %q", i, got, want)
			}
		}
	})
}
