package runonce_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
)

// TestInterrupted: an interrupted run reports what is known, and removes its pods if asked to.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errInterrupt) })
		rt := &fake{scripts: map[string]script{
			"up": runs(), "down": {sync: always(errBadName)}, "slow": {syncTakes: time.Hour}, "late": runs(),
			"waits": {timeline: []moment{{0, with(v1.PodPending, waiting("ContainerCreating"))}}},
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

// TestRemove: the run removes what it has started, and reports what it could not remove.
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
