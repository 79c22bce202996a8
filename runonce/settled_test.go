package runonce_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce"
)

// settling is a runtime whose pods are settled after a number of Syncs.
type settling struct {
	fake
	after int
}

func (s *settling) Settled(pod *v1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, _ := s.of(pod)
	return p.syncs >= s.after
}

// TestSettledIsLeftAlone: a pod that waits for its end is looked at again and again, and synced only if it needs that.
func TestSettledIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		timeline []moment
		until    runonce.Until
		want     int
	}{
		{"waits for its end", []moment{{0, running()}, {time.Hour, with(v1.PodSucceeded, ended(0))}}, runonce.UntilCompleted, 3},
		{"changes", []moment{{0, running()}, {time.Minute, with(v1.PodRunning, unready())}, {time.Hour, with(v1.PodSucceeded, ended(0))}}, runonce.UntilCompleted, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := &settling{fake: fake{scripts: map[string]script{"a": {timeline: c.timeline}}}, after: 2}
				got := runonce.Run(t.Context(), rt, admitted(newPod("a", v1.RestartPolicyNever)), runonce.Options{Until: c.until, Timeout: 2 * time.Hour})
				want(t, "a", got[0].Outcome, runonce.Succeeded)
				p, _ := rt.of(got[0].Pod)
				if p.syncs != c.want || p.statusCalls < 360 {
					t.Errorf("%d syncs and %d looks, want %d syncs, and a look every ten seconds", p.syncs, p.statusCalls, c.want)
				}
			})
		})
	}
}
