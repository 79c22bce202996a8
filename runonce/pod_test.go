package runonce_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
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
		timeline []moment
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
				rt := &fake{scripts: map[string]script{"web": {before: &c.before, timeline: c.timeline}}}
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
