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
		got := runonce.Run(ctx, rt, plan, runonce.Options{Parallel: 1, Remove: runonce.RemoveAll})
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
		got := runonce.Run(t.Context(), rt, plan, runonce.Options{Remove: runonce.RemoveAll})
		if diff := cmp.Diff([]string{"Running", "Running", "Rejected OutOfcpu"}, outcomes(got)); diff != "" {
			t.Error(diff)
		}
		want(t, "remove error of a", got[0].RemoveError, "")
		want(t, "remove error of b", got[1].RemoveError, "broken")
		want(t, "c was never touched", rt.pods["uid-c"] == nil, true)
	})
}

// TestFailFast: the first pod that has failed ends the run.
func TestFailFast(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		failFast bool
		want     []string
		elapsed  time.Duration
	}{
		{"off", false, []string{"Failed Error", "Succeeded", "Running", "Running"}, time.Hour + time.Second},
		{"on", true, []string{"Failed Error", "Canceled FailFast", "Running", "Canceled FailFast"}, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				slow := runs()
				slow.syncTakes = time.Hour
				bad, job := newPod("bad", v1.RestartPolicyNever), newPod("job", v1.RestartPolicyNever)
				rt := &fake{scripts: map[string]script{
					"bad": failing(time.Minute), "web": runs(), "slow": slow,
					"job": {timeline: []moment{{0, with(v1.PodPending)}, {2 * time.Minute, with(v1.PodSucceeded, ended(0))}}},
				}}
				begin := time.Now()
				got := runonce.Run(t.Context(), rt, admitted(bad, job, newPod("web", ""), newPod("slow", "")), runonce.Options{FailFast: c.failFast, Settle: time.Second})
				if diff := cmp.Diff(c.want, outcomes(got)); diff != "" {
					t.Error(diff)
				}
				if c.failFast {
					want(t, "message", got[1].Message, `the run ended because pod "default/bad" failed`)
				}
				want(t, "elapsed", time.Since(begin), c.elapsed)
			})
		})
	}
}

// TestFailFastWhileStopping: a pod that cannot start because another one could not be stopped has
// failed, too.
func TestFailFastWhileStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := script{stop: always(errBroken)}
		plan := admitted(newPod("a", ""), newPod("b", ""), newPod("c", ""))
		plan.Decisions[0].Replaces, plan.Decisions[1].Replaces = []*v1.Pod{newPod("old-a", "")}, []*v1.Pod{newPod("old-b", "")}
		rt := &fake{scripts: map[string]script{"old-a": stuck, "old-b": stuck, "c": runs()}}
		got := outcomes(runonce.Run(t.Context(), rt, plan, runonce.Options{FailFast: true}))
		if diff := cmp.Diff([]string{"Failed StopFailed", "Failed StopFailed", "Canceled FailFast"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRemoveInTime: the timeout of the run limits the removal of its pods, while a user who
// interrupts it gets the whole grace period.
func TestRemoveInTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		timeout   time.Duration
		interrupt time.Duration
		starts    time.Duration
		want      string
		elapsed   time.Duration
		within    time.Duration
	}{
		{"timed out", time.Minute, 0, time.Hour, "TimedOut ContainerCreating", 70 * time.Second, 10 * time.Second},
		{"almost timed out", time.Minute, 0, 50 * time.Second, "Running", 70 * time.Second, 20 * time.Second},
		{"long before the timeout", time.Hour, 0, time.Second, "Running", time.Second + 91*time.Second, 0},
		{"no timeout", 0, 0, time.Second, "Running", time.Second + 91*time.Second, 0},
		{"interrupted", time.Hour, time.Minute, 2 * time.Hour, "Canceled ContainerCreating", time.Minute + 91*time.Second, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.interrupt > 0 {
					time.AfterFunc(c.interrupt, func() { cancel(errInterrupt) })
				}
				rt := &fake{scripts: map[string]script{"web": {
					timeline:  []moment{{0, with(v1.PodPending, waiting("ContainerCreating"))}, {c.starts, running()}},
					stopTakes: 24 * time.Hour,
				}}}
				begin := time.Now()
				within := time.Duration(-1)
				got := runonce.Run(ctx, rt, admitted(newPod("web", "")), runonce.Options{
					Timeout: c.timeout, Remove: runonce.RemoveAll,
					Progress: func(e runonce.Progress) {
						if e.State == "Stopping" {
							within = e.Within
						}
					},
				})
				want(t, "announced", within, c.within)
				want(t, "outcome", outcomes(got)[0], c.want)
				want(t, "elapsed", time.Since(begin), c.elapsed)
			})
		})
	}
}

// stopDeadlines notes which pods were stopped with a deadline.
type stopDeadlines struct {
	*fake
	of map[string]bool
}

func (r stopDeadlines) Stop(ctx context.Context, pod *v1.Pod) error {
	_, r.of[pod.Name] = ctx.Deadline()
	return r.fake.Stop(ctx, pod)
}

// TestReplacedPodsKeepTheirGrace: the timeout of the run does not shorten the grace period of the
// pods that it replaces, only of its own.
func TestReplacedPodsKeepTheirGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old := newPod("old", "")
		plan := admitted(newPod("web", ""))
		plan.Decisions[0].Replaces = []*v1.Pod{old}
		rt := stopDeadlines{&fake{scripts: map[string]script{"web": runs()}}, map[string]bool{}}
		runonce.Run(t.Context(), rt, plan, runonce.Options{Timeout: time.Minute, Remove: runonce.RemoveAll})
		if diff := cmp.Diff(map[string]bool{"old": false, "web": true}, rt.of); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRunAgain: a pod that has ended is removed as one that this run starts again, other versions of it
// for good.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan := admitted(newPod("web", ""))
		plan.Decisions[0].Replaces = []*v1.Pod{newPod("web", ""), newPod("old", "")}
		f := &fake{scripts: map[string]script{"web": runs()}}
		want(t, "outcome", outcomes(runonce.Run(t.Context(), resetting{f, nil}, plan, runonce.Options{}))[0], "Running")
		calls := slices.Sorted(slices.Values(f.calls))
		if diff := cmp.Diff([]string{"reset web", "stop old", "stopped old", "sync web"}, calls); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRunAgainWhatIsTaken: a pod that another process has stopped before this run could is not run again.
func TestRunAgainWhatIsTaken(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			plan := admitted(newPod("web", ""))
			plan.Decisions[0].Replaces = []*v1.Pod{newPod("web", "")}
			o, wanted := runonce.Options{}, "Failed Stopped"
			if keep {
				over := make(chan struct{})
				close(over)
				o.Keep, wanted = over, "Removed Stopped"
			}
			f := &fake{scripts: map[string]script{"web": runs()}}
			taken := preemptedError{syncError{"stopped by another process", "Stopped", true, 0}, nil}
			want(t, "outcome", outcomes(runonce.Run(t.Context(), resetting{f, taken}, plan, o))[0], wanted)
			want(t, "syncs", count(f.calls, "sync web"), 0)
		})
	}
}
