package runonce_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runonce"
)

// bubbleStart is when a bubble of package synctest begins.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TestKept: pods of an earlier run that did not change.
func TestKept(t *testing.T) {
	t.Parallel()
	died := with(v1.PodRunning, restarted(crashed(5), 5))
	up5 := with(v1.PodRunning, restarted(up(), 5))
	failed, done := with(v1.PodFailed, ended(3)), with(v1.PodSucceeded, ended(0))
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(bubbleStart.Add(-d)) }
	up5.StartTime = new(ago(3 * time.Minute))
	done.ContainerStatuses[0].State.Terminated.FinishedAt = ago(2 * time.Minute)
	for _, c := range []struct {
		name     string
		before   v1.PodStatus
		timeline []moment
		want     string
		message  string
		attempts int
		restarts int
		syncs    int
	}{
		{"runs", up5, []moment{{0, up5}}, "Running", "from an earlier run, started 3m ago", 0, 0, 1},
		{"ended well", done, nil, "Succeeded", "from an earlier run, finished 2m ago; --rerun runs it again", 0, 0, 0},
		{"ended badly", failed, nil, "Failed Error", `container "c" exited with code 3; from an earlier run`, 0, 0, 0},
		{"died and is healed", died, []moment{{0, with(v1.PodRunning, restarted(up(), 6))}}, "Running", "", 1, 1, 1},
		{"was never started", with(v1.PodPending, waiting("ErrImagePull")), []moment{{0, running()}}, "Running", "", 1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pod := newPod("web", v1.RestartPolicyAlways)
				rt := &fake{scripts: map[string]script{"web": {before: &c.before, timeline: c.timeline}}}
				plan := admit.Plan{Decisions: []admit.Decision{{Pod: pod, Verdict: admit.Admitted, Running: true}}}
				got := runonce.Run(t.Context(), rt, plan, runonce.Options{Retry: runonce.Backoff{Factor: 1}, Remove: runonce.RemoveAll})
				want(t, "outcome", outcomes(got)[0], c.want)
				want(t, "message", got[0].Message, c.message)
				want(t, "earlier run", got[0].EarlierRun, c.message != "")
				want(t, "elapsed", got[0].Elapsed, 0)
				want(t, "attempts", got[0].Attempts, c.attempts)
				want(t, "restarts", got[0].Restarts, c.restarts)
				want(t, "syncs", rt.pods[pod.UID].syncs, c.syncs)
				want(t, "stops, though asked to remove what was started", rt.pods[pod.UID].stops, 0)
			})
		})
	}
}

// TestKeptPodThatCannotStart: trying in vain to start a pod of an earlier run is an attempt.
func TestKeptPodThatCannotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		before := with(v1.PodPending, waiting("ErrImageNeverPull"))
		rt := &fake{scripts: map[string]script{"web": {before: &before, sync: always(failure.Permanentf("no image"))}}}
		plan := admit.Plan{Decisions: []admit.Decision{{Pod: newPod("web", ""), Verdict: admit.Admitted, Running: true}}}
		got := runonce.Run(t.Context(), rt, plan, runonce.Options{})[0]
		want(t, "attempts", got.Attempts, 1)
		want(t, "earlier run", got.EarlierRun, false)
	})
}

// TestUnreadyIsSynced: a pod at its goal that has a container which is no longer ready is synced,
// since the container may have to be restarted; a pod without a change is not.
func TestUnreadyIsSynced(t *testing.T) {
	t.Parallel()
	slow := script{timeline: []moment{{0, with(v1.PodPending)}, {time.Minute, running()}}}
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
				timeline := []moment{{0, running()}, {55 * time.Second, c.at}}
				rt := &fake{scripts: map[string]script{"a": {timeline: timeline}, "b": slow}}
				got := runonce.Run(t.Context(), rt, admitted(newPod("a", ""), newPod("b", "")), runonce.Options{Timeout: time.Hour})
				want(t, "outcome", got[0].Outcome, runonce.Running)
				want(t, "synced again", rt.pods["uid-a"].syncs > 1, c.synced)
			})
		})
	}
}

// TestKeepsAddresses: the result has the addresses of a pod that has ended and released them.
func TestKeepsAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running := with(v1.PodRunning, up())
		running.PodIP, running.PodIPs = "192.0.2.7", []v1.PodIP{{IP: "192.0.2.7"}}
		rt := &fake{scripts: map[string]script{"job": {timeline: []moment{{0, running}, {time.Second, with(v1.PodFailed, ended(3))}}}}}
		plan := admit.Plan{Decisions: []admit.Decision{{Pod: newPod("job", v1.RestartPolicyNever), Verdict: admit.Admitted}}}
		got := runonce.Run(t.Context(), rt, plan, runonce.Options{Retry: runonce.Backoff{Factor: 1}, Until: runonce.UntilCompleted})
		want(t, "outcome", outcomes(got)[0], "Failed Error")
		want(t, "address", got[0].Status.PodIP, "192.0.2.7")
		want(t, "addresses", len(got[0].Status.PodIPs), 1)
	})
}

// interrupt is the cause of a canceled run.
var errInterrupt = errors.New("interrupted")

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

// TestFinishedPodsHoldNoSlot: pods that need not be started leave the slots to the others.
func TestFinishedPodsHoldNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done := with(v1.PodSucceeded, ended(0))
		plan := admitted(newPod("a", ""), newPod("b", ""), newPod("new", ""), newPod("other", ""))
		plan.Decisions[0].Running, plan.Decisions[1].Running = true, true
		rt := &fake{scripts: map[string]script{"a": {before: &done}, "b": {before: &done}, "new": runs(), "other": runs()}}
		got := outcomes(runonce.Run(t.Context(), rt, plan, runonce.Options{Parallel: 1, Timeout: time.Hour}))
		if diff := cmp.Diff([]string{"Succeeded", "Succeeded", "Running", "Running"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestProgress: no event contradicts one before it.
func TestProgress(t *testing.T) {
	t.Parallel()
	slow := script{timeline: []moment{{0, with(v1.PodPending)}, {time.Minute, running()}}}
	before, down := running(), with(v1.PodRunning, crashed(0))
	for _, c := range []struct {
		name   string
		kept   bool
		script script
		want   []string
	}{
		{"starts", false, runs(), []string{"Starting", "Running"}},
		{"runs already", true, script{before: &before, timeline: runs().timeline}, []string{"Running"}},
		{
			"dies and comes back", false,
			script{timeline: []moment{{0, running()}, {time.Second, down}, {2 * time.Second, with(v1.PodRunning, restarted(up(), 1))}}},
			[]string{"Starting", "Running", `Waiting no longer Running: container "c" is waiting: CrashLoopBackOff; before that it exited with code 1`, "Running"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				plan := admitted(newPod("web", ""), newPod("slow", ""))
				plan.Decisions[0].Running = c.kept
				var got []string
				runonce.Run(t.Context(), &fake{scripts: map[string]script{"web": c.script, "slow": slow}}, plan, runonce.Options{
					Progress: func(p runonce.Progress) {
						if p.Pod.Name == "web" {
							got = append(got, strings.TrimSpace(p.State+" "+p.Message))
						}
					},
				})
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
