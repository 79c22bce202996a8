package runtime_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
)

func TestLaterProcessGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
		first, cancel := context.WithCancel(t.Context())
		if err := n.pods(first, t).Sync(first, pod); err != nil {
			t.Fatal(err)
		}
		cancel()
		n.engine.Kill(runtime.ContainerID("uid-1", "c1", 0), 9)

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

func TestRebootIsHealed(t *testing.T) {
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

func TestStopRunsPreStopWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "stay")
		grace := int64(10)
		pod.Spec.TerminationGracePeriodSeconds = &grace
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 4}}}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("Stop took %s, want the hook's 4 s and the 6 s that are left", took)
		}
	})
}

// TestPreStopIsCutOff: a hook that needs more than the grace period ends with it, and the
// container has two seconds left.
func TestPreStopIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "stay")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(10))
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 12*time.Second {
			t.Errorf("Stop took %s, want the grace of 10 s and 2 s", took)
		}
	})
}

func TestStopGivesTwoSecondsAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "stay")
		pod.Spec.TerminationGracePeriodSeconds = new(int64)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("Stop took %s, want 2s", took)
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
		path := filepath.Join(n.root, "pods", "uid-1", "containers", "c0", "0")
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

// TestProbeGrace: a probe's own grace period goes before the pod's when that probe has the
// container killed, and only then.
func TestProbeGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "stay", "stay")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(20))
		pod.Spec.Containers[0].LivenessProbe = execProbe("exit", "1")
		pod.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds = new(int64(5))
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		took := func(f func(context.Context, *v1.Pod) error) time.Duration {
			begin := time.Now()
			if err := f(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			return time.Since(begin)
		}
		if d := took(p.Sync); d != 5*time.Second {
			t.Errorf("killed by its probe after %s, want the probe's 5s", d)
		}
		if d := took(p.Stop); d != 20*time.Second {
			t.Errorf("stopped after %s, want the pod's 20s", d)
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
		// Started, killed and restarted at once, killed and kept down.
		for range 2 {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		var s *runtime.SyncError
		if err := p.Sync(t.Context(), pod); !errors.As(err, &s) || s.Reason() != runtime.ReasonCrashLoopBackOff {
			t.Fatalf("after the second kill: %v, want a back-off", err)
		}
		wantStates(t.Context(), t, p, pod, "c0=waiting CrashLoopBackOff")
		time.Sleep(s.RetryAfter())
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		wantStates(t.Context(), t, p, pod, "c0=running")
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPostStartFailureKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep")
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{
			Exec: &v1.ExecAction{Command: []string{"/bin/box", "exit", "5", "no"}},
		}}
		err := p.Sync(t.Context(), pod)
		if err == nil || !strings.Contains(err.Error(), "postStart hook") || !strings.Contains(err.Error(), "5") {
			t.Errorf("Sync: %v, want it to tell of the hook", err)
		}
		cs, err := n.engine.Containers(t.Context(), "")
		if err != nil || len(cs) != 1 || cs[0].State != runtime.StateExited {
			t.Errorf("containers = %+v, %v; want it killed", cs, err)
		}
	})
}

// TestStopSignalOfKilledContainer: one that is killed without being stopped for good gets
// its own signal, too.
func TestStopSignalOfKilledContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep")
		own := v1.SIGUSR1
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: &own, PostStart: &v1.LifecycleHandler{
			Exec: &v1.ExecAction{Command: []string{"/bin/box", "exit", "5"}},
		}}
		if err := p.Sync(t.Context(), pod); err == nil {
			t.Error("Sync: no error, want that of the hook")
		}
		cs, err := n.engine.Containers(t.Context(), "")
		if err != nil || len(cs) != 1 || cs[0].Exit.ExitCode != 128+10 {
			t.Errorf("containers = %+v, %v; want it ended by SIGUSR1", cs, err)
		}
	})
}

func TestSidecarsStopLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		always := v1.ContainerRestartPolicyAlways
		grace := int64(10)
		pod.Spec.TerminationGracePeriodSeconds = &grace
		for _, name := range []string{"s0", "s1"} {
			c := pod.Spec.Containers[0]
			c.Name, c.Args, c.RestartPolicy = name, []string{"sleep"}, &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}}}
		for range 3 {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		wantStates(t.Context(), t, p, pod, "s0=running", "s1=running", "c0=running")
		events, err := n.engine.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		var order []string
		for range 3 {
			order = append(order, strings.SplitN((<-events).ContainerID, "-", 2)[0])
		}
		if got := strings.Join(order, " "); got != "c0 s1 s0" {
			t.Errorf("stopped in order %s, want c0 s1 s0", got)
		}
		n.left(t)
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
		synctest.Wait() // the event of the start is for nobody
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
		for i, want := range []string{"the end", "", ""} {
			if got := s.ContainerStatuses[i].State.Terminated.Message; got != want {
				t.Errorf("message of c%d = %q, want %q", i, got, want)
			}
		}
	})
}
