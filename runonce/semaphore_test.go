package runonce_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce"
)

// TestOrder: at most Parallel pods are synced at once, the highest priority first; a pod that
// waits holds no slot.
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
				s = script{sync: failFirst(3, errBroken), syncTakes: time.Second, timeline: runs().timeline}
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

// pulling is a runtime that has to pull the images of some pods.
type pulling struct {
	*fake
	takes map[string]time.Duration
}

func (r pulling) MissingImages(_ context.Context, pod *v1.Pod) func(context.Context) {
	takes, missing := r.takes[pod.Name]
	if !missing {
		return nil
	}
	return func(ctx context.Context) {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
}

// TestPullsHoldNoSlot: pods whose images are present start at once, and the others, when their
// images are there, by priority.
func TestPullsHoldNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := runs()
		slow.syncTakes = time.Minute
		rt := pulling{
			&fake{scripts: map[string]script{"far": runs(), "farther": runs(), "never": runs(), "near": slow, "next": slow}},
			map[string]time.Duration{"far": 10 * time.Second, "farther": 20 * time.Second, "never": time.Hour},
		}
		var got []string
		results := runonce.Run(t.Context(), rt, admitted(newPod("far", ""), newPod("farther", ""), newPod("never", ""), newPod("near", ""), newPod("next", "")), runonce.Options{
			Parallel: 1, Timeout: 30 * time.Minute,
			Progress: func(p runonce.Progress) {
				if p.State == "Starting" {
					got = append(got, fmt.Sprint(p.Pod.Name, " ", time.Since(bubbleStart)))
				}
			},
		})
		if diff := cmp.Diff([]string{"near 0s", "far 1m0s", "farther 1m0s", "next 1m0s"}, got); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"Running", "Running", "TimedOut Pulling", "Running", "Running"}, outcomes(results)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestPulledButNotStarted: a pod that has its images and waits for a slot is not started yet.
func TestPulledButNotStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := runs()
		slow.syncTakes = time.Hour
		rt := pulling{&fake{scripts: map[string]script{"far": runs(), "near": slow}}, map[string]time.Duration{"far": 10 * time.Second}}
		got := runonce.Run(t.Context(), rt, admitted(newPod("near", ""), newPod("far", "")), runonce.Options{Parallel: 1, Timeout: time.Minute})[1]
		want(t, "outcome", outcomes([]runonce.Result{got})[0], "TimedOut NotStarted")
		want(t, "message", got.Message, "the run ended before the pod was started")
		want(t, "attempts", got.Attempts, 0)
	})
}
