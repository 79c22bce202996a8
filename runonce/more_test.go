package runonce_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/goal"
)

// TestKept: pods of an earlier run that did not change.
func TestKept(t *testing.T) {
	t.Parallel()
	died := with(v1.PodRunning, restarted(crashed(5), 5))
	up5 := with(v1.PodRunning, restarted(up(), 5))
	failed, done := with(v1.PodFailed, ended(3)), with(v1.PodSucceeded, ended(0))
	for _, c := range []struct {
		name     string
		before   v1.PodStatus
		life     []moment
		want     string
		restarts int
		syncs    int
	}{
		{"runs", up5, []moment{{0, up5}}, "Running", 0, 1},
		{"ended well", done, nil, "Succeeded", 0, 0},
		{"ended badly", failed, nil, "Failed Error", 0, 0},
		{"died and is healed", died, []moment{{0, with(v1.PodRunning, restarted(up(), 6))}}, "Running", 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pod := newPod("web", v1.RestartPolicyAlways)
				rt := &fake{scripts: map[string]script{"web": {before: &c.before, life: c.life}}}
				plan := admit.Plan{Decisions: []admit.Decision{{Pod: pod, Verdict: admit.Admitted, Running: true}}}
				got := runonce.Run(t.Context(), rt, plan, runonce.Options{Retry: runonce.Backoff{Factor: 1}, Remove: true})
				want(t, "outcome", outcomes(got)[0], c.want)
				want(t, "restarts", got[0].Restarts, c.restarts)
				want(t, "syncs", rt.pods[pod.UID].syncs, c.syncs)
				want(t, "stops, though asked to remove what was started", rt.pods[pod.UID].stops, 0)
			})
		})
	}
}

// TestAilingIsSynced: a pod at its goal of which a container is not ready any more is
// synced, for it may have to be restarted; one whose status is as it was is left alone.
func TestAilingIsSynced(t *testing.T) {
	t.Parallel()
	slow := script{life: []moment{{0, with(v1.PodPending)}, {time.Minute, running()}}}
	for _, c := range []struct {
		name   string
		at     v1.PodStatus
		synced bool
	}{
		{"ready", running(), false},
		{"not ready any more", with(v1.PodRunning, unready()), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				life := []moment{{0, running()}, {55 * time.Second, c.at}}
				rt := &fake{scripts: map[string]script{"a": {life: life}, "b": slow}}
				got := runonce.Run(t.Context(), rt, admitted(newPod("a", ""), newPod("b", "")), runonce.Options{Timeout: time.Hour})
				want(t, "outcome", got[0].Outcome, runonce.Running)
				want(t, "synced again", rt.pods["uid-a"].syncs > 1, c.synced)
			})
		})
	}
}

// TestKeepsAddresses: the result has the addresses that the pod had, though it has let go of
// them at its end.
func TestKeepsAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running := with(v1.PodRunning, up())
		running.PodIP, running.PodIPs = "192.0.2.7", []v1.PodIP{{IP: "192.0.2.7"}}
		rt := &fake{scripts: map[string]script{"job": {life: []moment{{0, running}, {time.Second, with(v1.PodFailed, ended(3))}}}}}
		plan := admit.Plan{Decisions: []admit.Decision{{Pod: newPod("job", v1.RestartPolicyNever), Verdict: admit.Admitted}}}
		got := runonce.Run(t.Context(), rt, plan, runonce.Options{Retry: runonce.Backoff{Factor: 1}, Until: goal.UntilCompleted})
		want(t, "outcome", outcomes(got)[0], "Failed Error")
		want(t, "address", got[0].Status.PodIP, "192.0.2.7")
		want(t, "addresses", len(got[0].Status.PodIPs), 1)
	})
}

// interrupt is the cause of a canceled run.
var errInterrupt = errors.New("interrupted")

// TestInterrupted: what is known is told, and what is to be removed is removed.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errInterrupt) })
		rt := &fake{scripts: map[string]script{
			"up": runs(), "down": {sync: always(errBadName)}, "slow": {syncTakes: time.Hour}, "late": runs(),
			"waits": {life: []moment{{0, with(v1.PodPending, waiting("ContainerCreating"))}}},
		}}
		plan := admitted(newPod("up", ""), newPod("down", ""), newPod("waits", ""), newPod("slow", ""), newPod("late", ""))
		got := runonce.Run(ctx, rt, plan, runonce.Options{Parallel: 1, Remove: true})
		if diff := cmp.Diff([]string{
			"Running", "Failed InvalidImageName", "Canceled ContainerCreating", "Canceled ContainerCreating", "Canceled NotStarted",
		}, outcomes(got)); diff != "" {
			t.Error(diff)
		}
		var stopped []string
		for _, call := range rt.calls {
			if name, ok := strings.CutPrefix(call, "stopped "); ok {
				stopped = append(stopped, name)
			}
		}
		slices.Sort(stopped)
		if diff := cmp.Diff([]string{"down", "slow", "up", "waits"}, stopped); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRemove: --rm removes what was started, and says so when it could not.
func TestRemove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := runs()
		stuck.stop = always(errBroken)
		rt := &fake{scripts: map[string]script{"a": runs(), "b": stuck}}
		plan := admitted(newPod("a", ""), newPod("b", ""))
		plan.Decisions = append(plan.Decisions, admit.Decision{Pod: newPod("c", ""), Verdict: admit.Rejected, Reason: "OutOfcpu"})
		got := runonce.Run(t.Context(), rt, plan, runonce.Options{Remove: true})
		if diff := cmp.Diff([]string{"Running", "Running", "Rejected OutOfcpu"}, outcomes(got)); diff != "" {
			t.Error(diff)
		}
		want(t, "remove error of a", got[0].RemoveError, "")
		want(t, "remove error of b", got[1].RemoveError, "broken")
		want(t, "c was never touched", rt.pods["uid-c"] == nil, true)
	})
}

// TestOrder: at most Parallel pods are synced at once, the most important first; a pod
// that waits takes no place.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := &fake{scripts: map[string]script{}}
		pods := make([]*v1.Pod, 0, 9)
		for i := range 9 {
			p := newPod(fmt.Sprintf("p%d", i), "")
			priority := int32(i / 3)
			p.Spec.Priority = &priority
			s := runs()
			s.syncTakes = time.Second
			if i == 8 {
				s = script{sync: failFirst(3, errBroken), syncTakes: time.Second, life: runs().life}
			}
			rt.scripts[p.Name] = s
			pods = append(pods, p)
		}
		var dones []int
		got := runonce.Run(t.Context(), rt, admitted(pods...), runonce.Options{
			Parallel: 2,
			// p8 asks again at a moment at which no other pod comes or goes.
			Retry:    runonce.Backoff{Delay: 1500 * time.Millisecond, Factor: 2, Retries: 3},
			Progress: func(p runonce.Progress) { dones = append(dones, p.Done) },
		})
		for _, r := range got {
			want(t, r.Pod.Name, r.Outcome, runonce.Running)
		}
		want(t, "syncs at once", rt.most, 2)
		var lanes [][]string
		for _, at := range slices.SortedFunc(maps.Keys(rt.began), time.Time.Compare) {
			slices.Sort(rt.began[at])
			lanes = append(lanes, rt.began[at])
		}
		wantLanes := [][]string{{"p6", "p7"}, {"p3", "p8"}, {"p4", "p5"}, {"p0", "p1"}, {"p2", "p8"}, {"p8"}, {"p8"}}
		if diff := cmp.Diff(wantLanes, lanes); diff != "" {
			t.Error(diff)
		}
		want(t, "progress ends with all done", dones[len(dones)-1], 9)
		if !slices.IsSorted(dones) {
			t.Errorf("pods done went back: %v", dones)
		}
	})
}

// logBook is a Logs whose lines name the instance that wrote them.
type logBook struct{}

func (logBook) Path(pod *v1.Pod, container string, restart int) string {
	return fmt.Sprintf("/logs/%s/%s/%d.log", pod.Name, container, restart)
}

func (b logBook) Tail(pod *v1.Pod, container string, restart, n int) ([]string, error) {
	if container == "silent" {
		return nil, errBroken
	}
	return []string{fmt.Sprintf("%d lines of %s", n, b.Path(pod, container, restart))}, nil
}

func TestContainers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pod := newPod("web", v1.RestartPolicyNever)
		pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: "app:1"}}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "silent", Image: "app:2"}, v1.Container{Name: "waits", Image: "app:3"}, v1.Container{Name: "again", Image: "app:4"})
		named := func(cs v1.ContainerStatus, name string) v1.ContainerStatus {
			cs.Name = name
			return cs
		}
		again := named(restarted(up(), 2), "again")
		again.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 6}
		st := with(v1.PodFailed, ended(3), named(ended(4), "silent"), named(waiting("PodInitializing"), "waits"), again)
		st.InitContainerStatuses = []v1.ContainerStatus{named(ended(0), "init")}
		rt := &fake{scripts: map[string]script{"web": {life: []moment{{0, st}}}}}
		trace := &runonce.Trace{}
		begin := time.Now()
		trace.Record(pod.UID, "network", begin.Add(2*time.Second), time.Second)
		trace.Record(pod.UID, "volumes", begin.Add(time.Second), time.Second)
		trace.Record("other", "volumes", begin, time.Second)
		got := runonce.Run(t.Context(), rt, admitted(pod), runonce.Options{Logs: logBook{}, Trace: trace})[0]
		code := func(n int32) *int32 { return &n }
		want := []runonce.Container{
			{Name: "init", Image: "app:1", State: "Terminated", ExitCode: code(0), LogPath: "/logs/web/init/0.log"},
			{Name: "c", Image: "app:1", State: "Terminated", ExitCode: code(3), LogPath: "/logs/web/c/0.log", LogTail: []string{"10 lines of /logs/web/c/0.log"}},
			{Name: "silent", Image: "app:2", State: "Terminated", ExitCode: code(4), LogPath: "/logs/web/silent/0.log"},
			{Name: "waits", Image: "app:3", State: "Waiting"},
			{
				Name: "again", Image: "app:4", State: "Running", ExitCode: code(6), Restarts: 2,
				LogPath: "/logs/web/again/2.log", LogTail: []string{"10 lines of /logs/web/again/1.log"},
			},
		}
		if diff := cmp.Diff(want, got.Containers); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]runonce.Phase{{"volumes", time.Second, time.Second}, {"network", 2 * time.Second, time.Second}}, got.Phases); diff != "" {
			t.Error(diff)
		}
	})
}

func TestDelays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		in   runonce.Backoff
		want []time.Duration
	}{
		{"default", runonce.DefaultBackoff(), []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 32e9, 64e9, 128e9, 256e9, 512e9}},
		{"none", runonce.Backoff{Delay: time.Second, Factor: 2}, nil},
		{"even", runonce.Backoff{Delay: time.Second, Factor: 1, Retries: 3}, []time.Duration{1e9, 1e9, 1e9}},
		{"no overflow", runonce.Backoff{Delay: time.Hour, Factor: 1e9, Retries: 3}, []time.Duration{time.Hour, math.MaxInt64, math.MaxInt64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, slices.Collect(c.in.Delays())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		in   runonce.Options
		want []string
	}{
		{"zero", runonce.Options{}, nil},
		{"goal", runonce.Options{Until: "done"}, []string{`goal "done" is none of running, ready, completed`}},
		{"everything", runonce.Options{
			Until: goal.UntilReady, Timeout: -1, Parallel: -1, Retry: runonce.Backoff{Delay: -1, Factor: math.NaN(), Retries: -1},
		}, []string{"a time must not be negative", "-1 pods at once: must not be negative", "retry delay -1ns: must not be negative", "retry factor NaN: must be a number of at least 1", "-1 retries: must not be negative"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			if err := c.in.Validate(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEventStorm: a pod whose failing start makes events of its own is not synced in a
// loop.
func TestEventStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := &fake{}
		rt.scripts = map[string]script{"web": {sync: func(int) error {
			for _, p := range rt.pods {
				rt.notify(p)
			}
			return errBroken
		}}}
		pod := newPod("web", "")
		got := runonce.Run(t.Context(), rt, admitted(pod), runonce.Options{Retry: runonce.Backoff{Delay: time.Second, Factor: 2, Retries: 3}})[0]
		want(t, "outcome", got.Outcome, runonce.Failed)
		want(t, "elapsed", got.Elapsed, 7*time.Second)
		want(t, "syncs", rt.pods[pod.UID].syncs, 4)
	})
}

// TestNothingToDo: a plan without pods has no results.
func TestNothingToDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if got := runonce.Run(t.Context(), &fake{}, admit.Plan{}, runonce.Options{}); len(got) != 0 {
			t.Errorf("got %v", got)
		}
	})
}

// BenchmarkRun is the cost of the loop itself for a node full of pods.
func BenchmarkRun(b *testing.B) {
	scripts := map[string]script{}
	pods := make([]*v1.Pod, 0, 110)
	for i := range 110 {
		p := newPod(fmt.Sprintf("p%d", i), "")
		pods = append(pods, p)
		scripts[p.Name] = runs()
	}
	plan := admitted(pods...)
	for b.Loop() {
		runonce.Run(b.Context(), &fake{scripts: scripts}, plan, runonce.Options{})
	}
}
