package runtime_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

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

// TestPreStopIsCutOff: a hook is interrupted at the end of the grace period, and the container
// has two seconds left.
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

// TestHooksWithoutAGrace: the hooks of a pod that is ended have a second, also if its grace period is
// zero.
func TestHooksWithoutAGrace(t *testing.T) {
	for name, end := range map[string]func(context.Context, *runtime.Pods, *v1.Pod) error{
		"stop": func(ctx context.Context, p *runtime.Pods, pod *v1.Pod) error { return p.Stop(ctx, pod) },
		"fail": func(ctx context.Context, p *runtime.Pods, pod *v1.Pod) error { return p.Fail(ctx, pod, "", "") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.pods(t.Context(), t)
				pod := testPod(v1.RestartPolicyAlways, "stay")
				pod.Spec.TerminationGracePeriodSeconds = new(int64)
				pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}}
				if err := p.Sync(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				if err := end(t.Context(), p, pod); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != 3*time.Second {
					t.Errorf("took %s, want 1 s for the hook and 2 s for the container", took)
				}
			})
		})
	}
}

// TestStopWithinADeadline: the grace period ends before the deadline, so that there is time to kill
// the containers and to remove the pod.
func TestStopWithinADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "stay")
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := p.Stop(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("Stop took %s, want 5s", took)
		}
		n.left(t)
	})
}

// TestProbeGrace: a probe's own grace period overrides the pod's when the container is killed for
// that probe, and only then. It does not matter whether the pod goes on without the container.
func TestProbeGrace(t *testing.T) {
	for _, tt := range []struct {
		commands []string
		rest     time.Duration // that the others take
	}{
		{[]string{"stay", "stay"}, 20 * time.Second},
		{[]string{"stay"}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			p := n.pods(t.Context(), t)
			pod := testPod(v1.RestartPolicyNever, tt.commands...)
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
			if d := took(p.Stop); d != tt.rest {
				t.Errorf("stopped after %s, want %s", d, tt.rest)
			}
		})
	}
}

// keeps is an engine that cannot remove containers.
type keeps struct{ *enginetest.Engine }

func (keeps) Remove(context.Context, string) error { return errHangs }

// TestPostStartWithOldContainer: the hook of an instance runs also if the one before cannot be
// removed. No later Sync would run it.
func TestPostStartWithOldContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		hooks, program := 0, n.engine.Program
		n.engine.Program = func(c engine.ContainerConfig) enginetest.Behavior {
			life := program(c)
			life.Exec = func([]string) engine.ExecResult { hooks++; return engine.ExecResult{} }
			return life
		}
		p := n.podsOn(t.Context(), t, keeps{n.engine})
		pod := testPod(v1.RestartPolicyAlways, "sleep 1s")
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook"}}}}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := p.Sync(t.Context(), pod); !errors.Is(err, errHangs) || hooks != 2 {
			t.Errorf("%v after %d hooks, want %v after 2", err, hooks, errHangs)
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
		const want = `Exec lifecycle hook ([/bin/box exit 5 no]) for Container "c0" in Pod "web_default(uid-1)" failed - error: ` +
			`command '/bin/box exit 5 no' exited with 5: no, message: "no"`
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Sync: %v, want the error of the hook", err)
		}
		// It is not started again, so it does not wait.
		s := wantStates(t.Context(), t, p, pod, "c0=exit143")
		if ended := s.ContainerStatuses[0].State.Terminated; s.Phase != v1.PodFailed || ended.Message != want {
			t.Errorf("phase %s, message %q", s.Phase, ended.Message)
		}
		cs, err := n.engine.Containers(t.Context(), "")
		if err != nil || len(cs) != 1 || cs[0].State != engine.StateExited {
			t.Errorf("containers = %+v, %v; want it killed", cs, err)
		}
	})
}

// TestStopSignalOfKilledContainer: a container that is killed to be restarted gets its own signal,
// too.
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

// TestManyPodsAreStopped: pods wait for their containers at the same time, however many they are,
// but only some are removed at once.
func TestManyPodsAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		most := int64(8 * goruntime.NumCPU())
		var active, peak atomic.Int64
		n.sandboxes.RemoveErr = func(*v1.Pod) error {
			peak.Store(max(peak.Load(), active.Add(1)))
			time.Sleep(time.Second)
			active.Add(-1)
			return nil
		}
		var wg sync.WaitGroup
		count := 3*int(most) + 1
		begin := time.Now()
		for i := range count {
			pod := testPod(v1.RestartPolicyAlways, "stay")
			pod.UID, pod.Name = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("p%d", i)
			pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				if err := p.Stop(t.Context(), pod); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := peak.Load(); got > most || got < 2 {
			t.Errorf("%d pods were removed at once, want at most %d", got, most)
		}
		if took := time.Since(begin); took != 34*time.Second {
			t.Errorf("took %s, want one grace period of 30 s and four rounds of 1 s", took)
		}
		n.left(t)
	})
}

// TestStoppedPodsGetTheirProcessors: whoever ends the containers of a pod lets them exit without delay, for as long as
// that takes.
func TestStoppedPodsGetTheirProcessors(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*runtime.Pods, context.Context, *v1.Pod) error{
		"removed": (*runtime.Pods).Stop,
		"kept": func(p *runtime.Pods, ctx context.Context, pod *v1.Pod) error {
			return p.Terminate(ctx, pod, "Terminated", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.pods(t.Context(), t)
				pod := testPod(v1.RestartPolicyAlways, "sleep")
				if err := p.Sync(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				if n.cgroups.Stopped(pod.UID) {
					t.Error("stopped before anybody has stopped it")
				}
				if err := stop(p, t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				if !n.cgroups.Stopped(pod.UID) {
					t.Error("not stopped, or still being stopped")
				}
			})
		})
	}
}

// stuck is an engine that can neither stop nor remove containers.
type stuck struct{ *enginetest.Engine }

func (stuck) Stop(context.Context, string, syscall.Signal, time.Duration) error { return errHangs }

func (stuck) Remove(context.Context, string) error { return errHangs }

var errHangs = errors.New("its process hangs in the kernel")

// TestStopLeavesWhatContainersUse: as long as a container of the pod runs, everything that it
// uses stays, and a later Stop removes it.
func TestStopLeavesWhatContainersUse(t *testing.T) {
	for _, tc := range []struct {
		name   string
		within time.Duration // that the context is canceled
		stuck  bool
		want   string
		states []string
	}{
		{
			"interrupted", 3 * time.Second, false,
			`context canceled; its network, volumes and files were not removed because these containers still run: "c0"`,
			[]string{"c0=running", "c1=exit143"},
		},
		{
			"neither stops nor can be removed", time.Hour, true,
			`its process hangs in the kernel; its network, volumes and files were not removed because these containers still run: "c0", "c1"`,
			[]string{"c0=running", "c1=running"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.pods(t.Context(), t)
				pod := testPod(v1.RestartPolicyAlways, "stay", "sleep")
				if err := p.Sync(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				stopping := p
				if tc.stuck {
					stopping = n.podsOn(t.Context(), t, stuck{n.engine})
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(tc.within, cancel)
				if err := stopping.Stop(ctx, pod); err == nil || !strings.HasSuffix(err.Error(), tc.want) {
					t.Errorf("Stop: %v\nwant at the end: %s", err, tc.want)
				}
				if st := wantStates(t.Context(), t, p, pod, tc.states...); st.PodIP == "" {
					t.Error("the pod runs without an address")
				}
				if len(n.sandboxes.Left()) != 1 || len(n.cgroups.Left()) != 1 {
					t.Errorf("left: sandboxes %v, cgroups %v; want those of the pod", n.sandboxes.Left(), n.cgroups.Left())
				}
				if err := p.Stop(t.Context(), pod); err != nil {
					t.Error(err)
				}
				n.left(t)
			})
		})
	}
}
