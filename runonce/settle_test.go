package runonce_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runonce"
)

// life is one instance of a container that crashes, with the time from its start to its end and
// from there to the next start.
type life struct{ lives, pause time.Duration }

// crashing is the timeline of a pod whose container has these lives and then keeps running.
func crashing(lives ...life) []moment {
	var all []moment
	var last *v1.ContainerStateTerminated
	at := time.Duration(0)
	instance := func(state v1.ContainerState, n int) v1.PodStatus {
		cs := v1.ContainerStatus{Name: "c", RestartCount: int32(n), State: state, Ready: state.Running != nil}
		cs.LastTerminationState.Terminated = last
		return with(v1.PodRunning, cs)
	}
	start := func() v1.ContainerState {
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(bubbleStart.Add(at))}}
	}
	for n, l := range lives {
		began := metav1.NewTime(bubbleStart.Add(at))
		all = append(all, moment{at, instance(start(), n)})
		at += l.lives
		last = &v1.ContainerStateTerminated{ExitCode: 1, StartedAt: began, FinishedAt: metav1.NewTime(bubbleStart.Add(at))}
		all = append(all, moment{at, instance(v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, n)})
		at += l.pause
	}
	return append(all, moment{at, instance(start(), len(lives))})
}

// TestSettle: when a container counts as running.
func TestSettle(t *testing.T) {
	t.Parallel()
	const s = time.Second
	probe := &v1.Probe{}
	four := []life{{s, 0}, {s, 10 * s}, {s, 20 * s}, {s, 0}}
	for _, c := range []struct {
		name     string
		timeline []moment
		change   func(*v1.Container)
		options  runonce.Options
		want     string
		elapsed  time.Duration
	}{
		{"after three seconds", crashing(), nil, runonce.Options{Settle: 3 * s}, "Running", 3 * s},
		{"ready as well", crashing(), nil, runonce.Options{Settle: 3 * s, Until: runonce.UntilReady}, "Ready", 3 * s},
		{"completed: an Always pod has to settle", crashing(), nil, runonce.Options{Settle: 3 * s, Until: runonce.UntilCompleted}, "Ready", 3 * s},
		{"at once", crashing(), nil, runonce.Options{}, "Running", 0},
		{"a readiness probe proves that it works", crashing(), func(c *v1.Container) { c.ReadinessProbe = probe }, runonce.Options{Settle: 3 * s}, "Running", 0},
		{"a liveness probe proves nothing", crashing(), func(c *v1.Container) { c.LivenessProbe = probe }, runonce.Options{Settle: 3 * s}, "Running", 3 * s},
		{"after a crash it outlives its longest life", crashing(life{s, 0}, life{2 * s, 10 * s}), nil, runonce.Options{Settle: 3 * s}, "Running", 13*s + 5*s},
		{"crashes too often", crashing(four...), nil, runonce.Options{Settle: 3 * s}, "Failed CrashLoopBackOff", 34 * s},
		{"may crash more often", crashing(four...), nil, runonce.Options{Settle: 3 * s, MaxRestarts: new(4)}, "Running", 34*s + 4*s},
		{"may not crash", crashing(four...), nil, runonce.Options{Settle: 3 * s, MaxRestarts: new(0)}, "Failed CrashLoopBackOff", s},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pod := newPod("web", "")
				if c.change != nil {
					c.change(&pod.Spec.Containers[0])
				}
				got := runonce.Run(t.Context(), &fake{scripts: map[string]script{"web": {timeline: c.timeline}}}, admitted(pod), c.options)
				want(t, "outcome", outcomes(got)[0], c.want)
				want(t, "elapsed", got[0].Elapsed, c.elapsed)
			})
		})
	}
}

// TestSettleAfterTheClockWasSetBack: a container that seems to have started an hour from now has run
// since it was first seen.
func TestSettleAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cs := up()
		cs.State.Running.StartedAt = metav1.NewTime(bubbleStart.Add(time.Hour))
		web := script{timeline: []moment{{time.Second, with(v1.PodRunning, cs)}}}
		got := runonce.Run(t.Context(), &fake{scripts: map[string]script{"web": web}}, admitted(newPod("web", "")), runonce.Options{Settle: 3 * time.Second})
		want(t, "outcome", outcomes(got)[0], "Running")
		want(t, "elapsed", got[0].Elapsed, 4*time.Second)
	})
}

// TestProbeProvesNothingAfterACrash: a container that is ready between its crashes has to outlive its
// longest life all the same.
func TestProbeProvesNothingAfterACrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pod := newPod("web", "")
		pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
		web := script{timeline: crashing(life{5 * time.Second, time.Second})}
		slow := script{timeline: []moment{{0, with(v1.PodPending)}, {6 * time.Second, running()}}}
		got := runonce.Run(t.Context(), &fake{scripts: map[string]script{"web": web, "slow": slow}},
			admitted(pod, newPod("slow", "")), runonce.Options{Settle: 3 * time.Second, Until: runonce.UntilReady})
		want(t, "outcome", outcomes(got)[0], "Ready")
		want(t, "elapsed", got[0].Elapsed, 14*time.Second)
	})
}

// TestUnseenCrash: a crash counts although nobody saw the container down.
func TestUnseenCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		timeline := crashing(life{5 * time.Second, 0})
		web := script{timeline: []moment{timeline[0], timeline[2]}}
		slow := script{timeline: []moment{{0, with(v1.PodPending)}, {6 * time.Second, running()}}}
		got := runonce.Run(t.Context(), &fake{scripts: map[string]script{"web": web, "slow": slow}},
			admitted(newPod("web", ""), newPod("slow", "")), runonce.Options{Settle: 3 * time.Second})
		want(t, "outcome", outcomes(got)[0], "Running")
		want(t, "elapsed", got[0].Elapsed, 5*time.Second+8*time.Second)
	})
}

// TestRunsFromEarlierRun: what runs since an earlier run has settled, and its crashes before this
// run do not count.
func TestRunsFromEarlierRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cs := restarted(up(), 7)
		cs.State.Running.StartedAt = metav1.NewTime(bubbleStart.Add(-time.Minute))
		cs.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
			ExitCode: 1, StartedAt: metav1.NewTime(bubbleStart.Add(-time.Hour)), FinishedAt: metav1.NewTime(bubbleStart.Add(-time.Minute)),
		}
		before := with(v1.PodRunning, cs)
		plan := admitted(newPod("web", ""))
		plan.Decisions[0].Running = true
		got := runonce.Run(t.Context(), &fake{scripts: map[string]script{"web": {before: &before, timeline: []moment{{0, before}}}}}, plan,
			runonce.Options{Settle: 3 * time.Second, Start: bubbleStart})
		want(t, "outcome", outcomes(got)[0], "Running")
		want(t, "elapsed", got[0].Elapsed, 0)
		want(t, "duration", time.Since(bubbleStart), 0)
	})
}

// TestInitContainerIsNoCrash: an init container that has ended well is not restarted, whatever
// the pod's policy says, and is no crash.
func TestInitContainerIsNoCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pod := newPod("web", v1.RestartPolicyAlways)
		pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: "app:1"}}
		init := func(restarts int32, cs v1.ContainerStatus) v1.PodStatus {
			st := with(v1.PodPending, cs)
			done := restarted(ended(0), restarts)
			done.Name = "init"
			st.InitContainerStatuses = []v1.ContainerStatus{done}
			return st
		}
		var timeline []moment
		for n := range 6 {
			timeline = append(timeline, moment{time.Duration(n) * time.Second, init(int32(n), waiting(fmt.Sprint("PodInitializing", n)))})
		}
		timeline = append(timeline, moment{time.Minute, running()})
		got := runonce.Run(t.Context(), &fake{scripts: map[string]script{"web": {timeline: timeline}}}, admitted(pod), runonce.Options{Settle: time.Second})
		want(t, "outcome", outcomes(got)[0], "Running")
	})
}
