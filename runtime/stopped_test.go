package runtime_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
)

// halfway exits with 0, 5 s after SIGTERM.
var halfway = []string{"do", "trap", "sleep 5s"}

// TestUnfinishedStop: a pod that was told to stop before its time has failed for every later process,
// however its containers end, until it is removed. One that had no work left keeps its outcome.
func TestUnfinishedStop(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy v1.RestartPolicy
		args   []string
		after  time.Duration // of its start
		want   v1.PodPhase
		reason string
	}{
		{"job", v1.RestartPolicyNever, halfway, time.Second, v1.PodFailed, record.ReasonStopped},
		{"restarted after failures", v1.RestartPolicyOnFailure, halfway, time.Second, v1.PodFailed, record.ReasonStopped},
		{"service", v1.RestartPolicyAlways, halfway, time.Second, v1.PodFailed, record.ReasonStopped},
		{"between two crashes", v1.RestartPolicyOnFailure, []string{"exit", "1"}, time.Second, v1.PodFailed, record.ReasonStopped},
		{"completed but for its sidecar", v1.RestartPolicyNever, []string{"sleep", "1s"}, 2 * time.Second, v1.PodSucceeded, ""},
		{"failed but for its sidecar", v1.RestartPolicyNever, []string{"exit", "1"}, 2 * time.Second, v1.PodFailed, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p, pod := startedWithSidecar(t, n, tt.policy, tt.args)
				time.Sleep(tt.after)
				ctx, interrupt := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, interrupt)
				if err := p.Stop(ctx, pod); !errors.Is(err, context.Canceled) {
					t.Fatalf("Stop: %v", err)
				}
				time.Sleep(time.Minute)
				later := n.pods(t.Context(), t)
				if st, err := later.Status(t.Context(), pod); err != nil || st.Phase != tt.want || st.Reason != tt.reason {
					t.Errorf("phase %s, reason %q, %v; want %s, %q", st.Phase, st.Reason, err, tt.want, tt.reason)
				}
				if err := later.Stop(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				n.left(t)
			})
		})
	}
}

// TestUnfinishedRemoval: a pod of which something may have been removed has failed, whatever its
// outcome was.
func TestUnfinishedRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		_, pod := startedWithSidecar(t, n, v1.RestartPolicyNever, []string{"sleep", "1s"})
		time.Sleep(2 * time.Second)
		if err := n.podsOn(t.Context(), t, keeps{n.engine}).Stop(t.Context(), pod); !errors.Is(err, errHangs) {
			t.Fatalf("Stop: %v", err)
		}
		st, err := n.pods(t.Context(), t).Status(t.Context(), pod)
		if err != nil || st.Phase != v1.PodFailed || st.Reason != record.ReasonStopped {
			t.Errorf("phase %s, reason %q, %v; want Failed", st.Phase, st.Reason, err)
		}
	})
}

// startedWithSidecar starts a pod with a sidecar that stops slowly, and a container.
func startedWithSidecar(t *testing.T, n *node, policy v1.RestartPolicy, args []string) (*runtime.Pods, *v1.Pod) {
	t.Helper()
	pod := withSidecar(testPod(policy, "main"), halfway...)
	pod.Spec.Containers[0].Args = args
	p := n.pods(t.Context(), t)
	for range 2 { // the sidecar, then the container
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	return p, pod
}

func withSidecar(pod *v1.Pod, args ...string) *v1.Pod {
	pod.Spec.InitContainers = []v1.Container{{
		Name: "side", Image: boxImage, Args: args, RestartPolicy: new(v1.ContainerRestartPolicyAlways),
		ImagePullPolicy: v1.PullIfNotPresent,
	}}
	return pod
}

// TestInterruptedPreStop: a container whose hook is interrupted gets its signal all the same, but a
// sidecar does not before the others have ended.
func TestInterruptedPreStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := withSidecar(testPod(v1.RestartPolicyNever, "do"), "sleep")
		pod.Spec.Containers[0].Args = halfway
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 20}}}
		p := n.pods(t.Context(), t)
		for range 2 {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := p.Stop(ctx, pod); !errors.Is(err, context.Canceled) {
			t.Fatalf("Stop: %v", err)
		}
		time.Sleep(10 * time.Second)
		all := n.containers(t, pod)
		if c := all["c0"]; c.State != engine.StateExited || c.Exit.ExitCode != 0 {
			t.Errorf("container: %s, exit code %d; want it to have ended by its signal", c.State, c.Exit.ExitCode)
		}
		if c := all["side"]; c.State != engine.StateRunning {
			t.Errorf("sidecar: %s, want it to run", c.State)
		}
	})
}

// overtaken calls stop while a pod is being observed: when the record has been read, and the
// containers have not.
type overtaken struct {
	engine.Engine
	stop func()
}

func (e *overtaken) Containers(ctx context.Context, uid string) ([]engine.Container, error) {
	if stop := e.stop; stop != nil {
		e.stop = nil
		stop()
	}
	return e.Engine.Containers(ctx, uid)
}

// TestStatusWhileStopped: whoever observes a pod while another process stops it does not see the exit
// without the stop.
func TestStatusWhileStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyNever, "trap")
		e := &overtaken{Engine: n.engine}
		p := n.podsOn(t.Context(), t, e)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		records := n.records
		e.stop = func() {
			_, err := records.Update(pod.UID, func(r *record.Pod) error {
				r.Failed = &record.Failure{Reason: record.ReasonStopped}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			n.engine.Kill(n.containers(t, pod)["c0"].ID, 0)
		}
		st, err := p.Status(t.Context(), pod)
		if err != nil || st.Phase != v1.PodFailed || st.Reason != record.ReasonStopped {
			t.Errorf("%s, %q, %v; want Failed", st.Phase, st.Reason, err)
		}
		if !slices.ContainsFunc(st.ContainerStatuses, func(cs v1.ContainerStatus) bool { return cs.State.Terminated != nil }) {
			t.Error("the exit was not seen")
		}
	})
}
