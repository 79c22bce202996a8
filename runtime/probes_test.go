package runtime_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/record"
)

// slow is an engine whose commands take as long as they may.
type slow struct{ *enginetest.Engine }

func (slow) Exec(ctx context.Context, _ string, _ []string) (engine.ExecResult, error) {
	<-ctx.Done()
	return engine.ExecResult{}, ctx.Err()
}

// A probe with a long timeout does not keep Probe from returning.
func TestProbeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("sleep")
		pod.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 3600
		ctx, cancel := context.WithCancel(t.Context())
		if err := n.pods(ctx, t).Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		cancel()
		later := n.podsOn(t.Context(), t, slow{n.engine})
		begin := time.Now()
		if err := later.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		st, err := later.Status(t.Context(), pod)
		if took := time.Since(begin); err != nil || took != 10*time.Second || st.ContainerStatuses[0].Ready {
			t.Errorf("after %s: ready %t, %v", took, st.ContainerStatuses[0].Ready, err)
		}
		const want = `containers with unready status: [c0]; container "c0": readiness probe: no answer within 10s`
		if got := podspec.Condition(st, v1.ContainersReady).Message; got != want {
			t.Errorf("message %q", got)
		}
		if err := later.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}

// counted is an engine that counts the commands it runs.
type counted struct {
	*enginetest.Engine
	commands atomic.Int32
}

func (c *counted) Exec(ctx context.Context, id string, command []string) (engine.ExecResult, error) {
	c.commands.Add(1)
	return c.Engine.Exec(ctx, id, command)
}

// A pod that another process has stopped is not probed any more.
func TestLostPodIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("exit", "0")
		run := n.records.NewRun()
		if err := errors.Join(run.Enter(t.Context()), run.Reserve([]*v1.Pod{pod}), run.Leave()); err != nil {
			t.Fatal(err)
		}
		probed := &counted{Engine: n.engine}
		p := n.podsOn(t.Context(), t, probed)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		other := n.pods(t.Context(), t)
		if err := errors.Join(n.records.NewRun().Revoke(pod, nil), other.Stop(t.Context(), pod)); err != nil {
			t.Fatal(err)
		}
		var lost *record.LostError
		if err := p.Sync(t.Context(), pod); !errors.As(err, &lost) {
			t.Errorf("sync: %v", err)
		}
		before := probed.commands.Load()
		time.Sleep(time.Minute)
		if after := probed.commands.Load(); before == 0 || after != before {
			t.Errorf("%d probes before, %d after", before, after)
		}
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	})
}

// lingering is an engine that takes a second to kill a command.
type lingering struct {
	*enginetest.Engine
	commands atomic.Int32
}

func (l *lingering) Exec(ctx context.Context, _ string, _ []string) (engine.ExecResult, error) {
	l.commands.Add(1)
	<-ctx.Done()
	time.Sleep(time.Second)
	l.commands.Add(-1)
	return engine.ExecResult{}, ctx.Err()
}

// At the end the commands of probes are killed, which is waited for.
func TestWaitForProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		e := &lingering{Engine: n.engine}
		ctx, cancel := context.WithCancel(t.Context())
		p := n.podsOn(ctx, t, e)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("sleep")
		pod.Spec.Containers[0].ReadinessProbe.TimeoutSeconds = 3600
		if err := p.Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		before := e.commands.Load()
		cancel()
		p.Wait()
		if after := e.commands.Load(); before != 1 || after != 0 {
			t.Errorf("commands: %d before, %d after", before, after)
		}
		if err := n.pods(t.Context(), t).Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}

// A startup probe that has succeeded is not run again by a later process, whatever it would say.
func TestStartupProbeOfEarlierRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].StartupProbe = execProbe("exit", "0")
		}
		pod.Spec.Containers[0].ReadinessProbe = execProbe("exit", "0")
		ctx, cancel := context.WithCancel(t.Context())
		first := n.pods(ctx, t)
		if err := first.Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].StartupProbe = execProbe("exit", "1")
		}
		later := n.pods(t.Context(), t)
		if err := later.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := later.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		st, err := later.Status(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, cs := range st.ContainerStatuses {
			if !*cs.Started || !cs.Ready || cs.RestartCount != 0 {
				t.Errorf("container %s: started %t, ready %t, %d restarts", cs.Name, *cs.Started, cs.Ready, cs.RestartCount)
			}
		}
		if err := later.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}

// A container that needs no probe to be ready stays so when a later process begins to probe it.
func TestLivenessOfEarlierRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].LivenessProbe = execProbe("exit", "0")
		if err := n.pods(t.Context(), t).Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		later := n.pods(t.Context(), t)
		if err := later.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		st, err := later.Status(t.Context(), pod)
		if err != nil || !*st.ContainerStatuses[0].Started || !st.ContainerStatuses[0].Ready {
			t.Errorf("%+v, %v", st.ContainerStatuses, err)
		}
		if err := later.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}

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

// TestHealthchecks: the health check of an image is the readiness probe of a container that has none, also for a process
// that comes later; without the option, or where the pod has a probe, it says nothing.
func TestHealthchecks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		on     bool
		own    *v1.Probe
		passes string // exit code of the health check
		ready  bool
	}{
		{"passes", true, nil, "0", true},
		{"fails", true, nil, "1", false},
		{"off", false, nil, "1", true},
		{"the pod has a probe", true, execProbe("exit", "0"), "1", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.health = tt.on
				img := n.engine.Store[boxImage]
				img.Healthcheck = &engine.Healthcheck{Test: []string{"CMD", "/bin/box", "exit", tt.passes}, Interval: time.Second}
				n.engine.Store[boxImage] = img
				pod := testPod(v1.RestartPolicyAlways, "sleep")
				pod.Spec.Containers[0].ReadinessProbe = tt.own
				ctx, cancel := context.WithCancel(t.Context())
				check := func(when string, p *runtime.Pods) {
					t.Helper()
					st, err := p.Status(t.Context(), pod)
					if err != nil || st.ContainerStatuses[0].Ready != tt.ready || st.ContainerStatuses[0].RestartCount != 0 {
						t.Errorf("%s: %+v, %v", when, st.ContainerStatuses, err)
					}
				}
				p := n.pods(ctx, t)
				if err := p.Sync(ctx, pod); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				check("the process that has started it", p)
				cancel()
				p.Wait()
				later := n.pods(t.Context(), t)
				if err := later.Probe(t.Context()); err != nil {
					t.Fatal(err)
				}
				check("a later process", later)
				if err := later.Stop(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
