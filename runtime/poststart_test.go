package runtime_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// hooks are the commands of postStart hooks that have run on a node to their end.
type hooks struct {
	ended int
	code  int32
}

// on has every hook of the node's containers take three seconds.
func (h *hooks) on(n *node) *hooks {
	program := n.engine.Program
	n.engine.Program = func(c engine.ContainerConfig) enginetest.Behavior {
		life := program(c)
		life.Exec = func([]string) engine.ExecResult {
			h.ended++
			return engine.ExecResult{ExitCode: h.code}
		}
		life.ExecTakes = func([]string) time.Duration { return 3 * time.Second }
		return life
	}
	return h
}

func postStart() *v1.Lifecycle {
	return &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook"}}}}
}

// TestPostStartIsCutOff: a container is left alone by whoever cuts its hook off. It waits until a
// later process has run the hook again.
func TestPostStartIsCutOff(t *testing.T) {
	for _, tt := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		hook *v1.LifecycleHandler
		want error
	}{
		{"by a signal", cutAfter, postStart().PostStart, context.Canceled},
		{"by a deadline", timedOutAfter, postStart().PostStart, context.DeadlineExceeded},
		{"while it sleeps", cutAfter, &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}}, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				(&hooks{}).on(n)
				pod := testPod(v1.RestartPolicyNever, "sleep", "sleep")
				pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: tt.hook}
				first, end := context.WithCancel(t.Context())
				ctx, cancel := tt.ctx(first)
				defer cancel()
				if err := n.pods(first, t).Sync(ctx, pod); !errors.Is(err, tt.want) || err.Error() != tt.want.Error() {
					t.Fatalf("Sync: %v, want %v alone", err, tt.want)
				}
				end()

				p := n.pods(t.Context(), t)
				wantStates(t.Context(), t, p, pod, "c0=waiting ContainerCreating", "c1=waiting ContainerCreating")
				begin := time.Now()
				if err := p.Sync(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != 3*time.Second {
					t.Errorf("the hook took %s, want its 3 s again", took)
				}
				s := wantStates(t.Context(), t, p, pod, "c0=running", "c1=running")
				if s.ContainerStatuses[0].RestartCount != 0 || !s.ContainerStatuses[0].Ready {
					t.Errorf("%+v, want the same instance, ready", s.ContainerStatuses[0])
				}
				if err := p.Sync(t.Context(), pod); err != nil || time.Since(begin) != 3*time.Second {
					t.Errorf("Sync: %v, %s; want the hook not to run again", err, time.Since(begin))
				}
			})
		})
	}
}

func cutAfter(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	time.AfterFunc(time.Second, cancel)
	return ctx, cancel
}

func timedOutAfter(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Second)
}

// TestPostStartFailsLater: a hook that fails when it runs again kills its container.
func TestPostStartFailsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		h := (&hooks{code: 1}).on(n)
		pod := testPod(v1.RestartPolicyNever, "sleep")
		pod.Spec.Containers[0].Lifecycle = postStart()
		ctx, cancel := cutAfter(t.Context())
		defer cancel()
		if err := n.pods(ctx, t).Sync(ctx, pod); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		p := n.pods(t.Context(), t)
		if err := p.Sync(t.Context(), pod); err == nil || h.ended != 1 {
			t.Errorf("Sync: %v after %d hooks, want the error of one", err, h.ended)
		}
		if s := wantStates(t.Context(), t, p, pod, "c0=exit143"); s.Phase != v1.PodFailed {
			t.Errorf("phase %s, want it to have failed", s.Phase)
		}
	})
}

// diesAfterStart is the engine of a process that ends as soon as a container has been started.
type diesAfterStart struct {
	*enginetest.Engine
	die context.CancelFunc
}

func (e diesAfterStart) Start(ctx context.Context, c engine.ContainerConfig) error {
	defer e.die()
	return e.Engine.Start(ctx, c)
}

// TestPostStartAfterDeath: a process that ends between the start of a container and its hook leaves
// the hook to the next one, for each instance again.
func TestPostStartAfterDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		h := (&hooks{}).on(n)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].Lifecycle = postStart()
		p := n.pods(t.Context(), t)
		for i := range 2 {
			ctx, die := context.WithCancel(t.Context())
			_ = n.podsOn(ctx, t, diesAfterStart{n.engine, die}).Sync(ctx, pod)
			wantStates(t.Context(), t, p, pod, "c0=waiting ContainerCreating")
			if err := p.Sync(t.Context(), pod); err != nil || h.ended != i+1 {
				t.Fatalf("Sync: %v after %d hooks, want %d", err, h.ended, i+1)
			}
			wantStates(t.Context(), t, p, pod, "c0=running")
			n.engine.Kill(n.containers(t, pod)["c0"].ID, 9)
		}
	})
}

// TestSidecarAwaitsPostStart: what follows a sidecar starts when its hook has passed, also when a
// later process runs that.
func TestSidecarAwaitsPostStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		(&hooks{}).on(n)
		pod := testPod(v1.RestartPolicyNever, "sleep")
		side := pod.Spec.Containers[0]
		side.Name, side.RestartPolicy, side.Lifecycle = "side", new(v1.ContainerRestartPolicyAlways), postStart()
		pod.Spec.InitContainers = []v1.Container{side}
		ctx, cancel := cutAfter(t.Context())
		defer cancel()
		if err := n.pods(ctx, t).Sync(ctx, pod); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		p := n.pods(t.Context(), t)
		changes, err := p.Changes(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		syncOnce := func(states ...string) {
			t.Helper()
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			wantStates(t.Context(), t, p, pod, states...)
		}
		syncOnce("side=running", "c0=waiting ContainerCreating")
		<-changes // else nobody would start the container
		syncOnce("side=running", "c0=running")
	})
}

// TestProbesAwaitPostStart: a container is not probed during its hook, which may do what the probes
// ask for.
func TestProbesAwaitPostStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var first atomic.Pointer[time.Time] // probe
		program := n.engine.Program
		n.engine.Program = func(c engine.ContainerConfig) enginetest.Behavior {
			life := program(c)
			life.Exec = func([]string) engine.ExecResult {
				first.CompareAndSwap(nil, new(time.Now()))
				return engine.ExecResult{}
			}
			return life
		}
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}}
		pod.Spec.Containers[0].ReadinessProbe = execProbe("exit", "0")
		ctx, cancel := cutAfter(t.Context())
		defer cancel()
		if err := n.pods(ctx, t).Sync(ctx, pod); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		p := n.pods(t.Context(), t)
		if err := p.Probe(t.Context()); err != nil { // as ps does
			t.Fatal(err)
		}
		wantStates(t.Context(), t, p, pod, "c0=waiting ContainerCreating")
		end := time.Now().Add(60 * time.Second) // of the hook
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if s := wantStates(t.Context(), t, p, pod, "c0=running"); !s.ContainerStatuses[0].Ready {
			t.Error("not ready")
		}
		if at := first.Load(); at == nil || at.Before(end) {
			t.Errorf("first probe at %v, want none before the end of the hook, %v", at, end)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}
