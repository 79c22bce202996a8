package runonce_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
)

// keep runs the pods until the time has passed, and returns the results when they were known, those
// at the end, and when the first were.
func keep(t *testing.T, f *fake, lasts time.Duration, pods ...*v1.Pod) (known, last []runonce.Result, at time.Duration) {
	t.Helper()
	over := make(chan struct{})
	begin := time.Now()
	time.AfterFunc(lasts, func() { close(over) })
	last = runonce.Run(t.Context(), f, admitted(pods...), runonce.Options{Keep: over, Concluded: func(results []runonce.Result) {
		known, at = slices.Clone(results), time.Since(begin)
	}})
	if d := time.Since(begin); d != lasts {
		t.Errorf("the run took %s, want %s", d, lasts)
	}
	return known, last, at
}

func count(calls []string, call string) (n int) {
	for _, c := range calls {
		if c == call {
			n++
		}
	}
	return n
}

// TestKeepRestarts: after the goal is reached, a container that ends is started again, however often.
func TestKeepRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		crashes := []moment{{0, running()}}
		for i := range 10 {
			at := time.Duration(i+1) * time.Minute
			crashes = append(crashes, moment{at, with(v1.PodRunning, crashed(int32(i)))}, moment{at + time.Second, with(v1.PodRunning, restarted(up(), int32(i+1)))})
		}
		f := &fake{scripts: map[string]script{"web": {timeline: crashes}, "job": {timeline: []moment{{0, with(v1.PodSucceeded, ended(0))}}}}}
		known, last, at := keep(t, f, time.Hour, newPod("web", v1.RestartPolicyAlways), newPod("job", v1.RestartPolicyNever))
		want(t, "first", known[0].Outcome, runonce.Running)
		want(t, "first restarts", known[0].Restarts, 0)
		want(t, "known after", at, 0)
		want(t, "last", last[0].Outcome, runonce.Running)
		want(t, "restarts", last[0].Restarts, 10)
		want(t, "a sync for every crash", count(f.calls, "sync web") >= 11, true)
		want(t, "job", last[1].Outcome, runonce.Succeeded)
		want(t, "syncs of the job", count(f.calls, "sync job"), 2)
	})
}

// TestKeepWhileStopping: while a pod that is replaced takes its time to stop, what crashes of the
// others is started again, and nothing else is started.
func TestKeepWhileStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		crash := moment{10 * time.Minute, with(v1.PodRunning, crashed(0))}
		back := moment{10*time.Minute + time.Second, with(v1.PodRunning, restarted(up(), 1))}
		f := &fake{scripts: map[string]script{
			"web": {timeline: []moment{{0, running()}, crash, back}}, "old": {stopTakes: time.Hour}, "new": runs(),
		}}
		web, before, after := newPod("web", v1.RestartPolicyAlways), newPod("old", v1.RestartPolicyAlways), newPod("new", v1.RestartPolicyAlways)
		if err := f.Sync(t.Context(), web); err != nil {
			t.Fatal(err)
		}
		plan := admit.Plan{Decisions: []admit.Decision{
			{Pod: web, Verdict: admit.Admitted, Running: true}, {Pod: after, Verdict: admit.Admitted, Replaces: []*v1.Pod{before}},
		}}
		over := make(chan struct{})
		time.AfterFunc(2*time.Hour, func() { close(over) })
		var last runonce.Progress
		results := runonce.Run(t.Context(), f, plan, runonce.Options{Keep: over, Progress: func(p runonce.Progress) {
			if after := time.Since(begin); after > 0 && after < time.Hour {
				last = p
			}
		}})
		want(t, "web", results[0].Outcome, runonce.Running)
		want(t, "new", results[1].Outcome, runonce.Running)
		want(t, "reached their goal by then", fmt.Sprint(last.Done, " of ", last.Total), "1 of 2")
		synced := false
		for at, pods := range f.began {
			switch passed := at.Sub(begin); {
			case slices.Contains(pods, "web") && passed == 10*time.Minute:
				synced = true
			case slices.Contains(pods, "new") && passed < time.Hour:
				t.Errorf("the new one was started after %s", passed)
			}
		}
		want(t, "synced when it had crashed", synced, true)
	})
}

// TestKeepWithoutDuplicates: a pod that runs on is kept at its goal while other versions of it are
// stopped, each once. One that cannot be stopped is an error of the pod.
func TestKeepWithoutDuplicates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		stop func(int) error
		keep bool
		want string
	}{
		{"kept", nil, true, "Running"},
		{"not kept", nil, false, "Running"},
		{"that stay", always(errBroken), true, "Failed StopFailed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{scripts: map[string]script{
					"web": runs(), "old1": {stopTakes: time.Minute, stop: c.stop}, "old2": {stopTakes: time.Hour, stop: c.stop},
				}}
				web := newPod("web", v1.RestartPolicyAlways)
				if err := f.Sync(t.Context(), web); err != nil {
					t.Fatal(err)
				}
				plan := admit.Plan{Decisions: []admit.Decision{{
					Pod: web, Verdict: admit.Admitted, Running: true,
					Replaces: []*v1.Pod{newPod("old1", ""), newPod("old2", "")},
				}}}
				o := runonce.Options{}
				if c.keep {
					over := make(chan struct{})
					time.AfterFunc(2*time.Hour, func() { close(over) })
					o.Keep = over
				}
				got := runonce.Run(t.Context(), f, plan, o)
				want(t, "outcome", outcomes(got)[0], c.want)
				want(t, "stops", count(f.calls, "stop old1")+count(f.calls, "stop old2"), 2)
				want(t, "stops of the pod itself", count(f.calls, "stop web"), 0)
			})
		})
	}
}

// TestKeepTriesAgain: a pod that was given up has failed, and is tried again every five minutes. One
// that another process has stopped is not.
func TestKeepTriesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{scripts: map[string]script{
			"late": {sync: failFirst(2, syncError{text: "no such image", reason: "ErrImagePull", perm: true}), timeline: runs().timeline},
			"lost": {sync: func(int) error { return stopped{} }},
		}}
		known, last, at := keep(t, f, time.Hour, newPod("late", v1.RestartPolicyAlways), newPod("lost", v1.RestartPolicyAlways))
		want(t, "first", known[0].Outcome, runonce.Failed)
		want(t, "known after", at, 0)
		want(t, "last", last[0].Outcome, runonce.Running)
		want(t, "syncs", count(f.calls, "sync late"), 3)
		want(t, "the lost one", last[1].Outcome, runonce.Removed)
		want(t, "syncs of the lost one", count(f.calls, "sync lost"), 1)
	})
}

// TestKeepJob: a pod of a Job that is tried again waits until the Job lets it start.
func TestKeepJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		f := &fake{scripts: map[string]script{
			"late": {sync: failFirst(1, syncError{text: "no such image", perm: true}), timeline: runs().timeline},
			"busy": succeeding(12 * time.Minute),
		}}
		const rules = `"parallelism": 1`
		_, last, _ := keep(t, f, time.Hour, jobPod("late", v1.RestartPolicyNever, rules), jobPod("busy", v1.RestartPolicyNever, rules))
		want(t, "the busy one", last[1].Outcome, runonce.Succeeded)
		want(t, "the late one", last[0].Outcome, runonce.Running)
		for at, pods := range f.began {
			if after := at.Sub(begin); slices.Contains(pods, "late") && after > 0 && after < 12*time.Minute {
				t.Errorf("tried again after %s, beside the other one", after)
			}
		}
	})
}

// stopped is the error of a pod that another process has stopped.
type stopped struct{}

func (stopped) Error() string        { return "stopped by another process" }
func (stopped) Permanent() bool      { return true }
func (stopped) Reason() string       { return "Stopped" }
func (stopped) PreemptedBy() *v1.Pod { return nil }

// TestKeepEnds: at the end a sync is finished, but a pull is not, also before the goal is reached.
func TestKeepEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := hanging{&fake{scripts: map[string]script{"slow": {syncTakes: 3 * time.Second, timeline: runs().timeline}}}}
		over := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(over) })
		begin := time.Now()
		results := runonce.Run(t.Context(), f, admitted(newPod("slow", v1.RestartPolicyAlways), newPod("pulls", v1.RestartPolicyAlways)), runonce.Options{Keep: over})
		want(t, "took", time.Since(begin), 3*time.Second)
		want(t, "the synced one", results[0].Outcome, runonce.Running)
		want(t, "the pulling one", results[1].Outcome, runonce.Canceled)
		want(t, "syncs of the pulling one", count(f.calls, "sync pulls"), 0)
	})
}

// hanging is a runtime whose pod "pulls" pulls its image until it is interrupted.
type hanging struct{ *fake }

func (hanging) MissingImages(_ context.Context, pod *v1.Pod) func(context.Context) {
	if pod.Name != "pulls" {
		return nil
	}
	return func(ctx context.Context) { <-ctx.Done() }
}
