package runonce_test

import (
	"context"
	"fmt"
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

// jobPod is a pod of the Job "j" with the given rules. It has a number of completions unless they
// say that it has none.
func jobPod(name string, policy v1.RestartPolicy, rules string) *v1.Pod {
	p := newPod(name, policy)
	p.Annotations = map[string]string{"runonce/job": `{"name": "j", "completions": 1, ` + rules + `}`}
	return p
}

func failing(after time.Duration) script {
	return script{timeline: []moment{{0, running()}, {after, with(v1.PodFailed, ended(3))}}}
}

func succeeding(after time.Duration) script {
	return script{timeline: []moment{{0, running()}, {after, with(v1.PodSucceeded, ended(0))}}}
}

// runJobs runs the pods to completion and returns the results as "name outcome reason", with the
// attempts if there were several.
func runJobs(ctx context.Context, f *fake, plan admit.Plan, o runonce.Options) []string {
	o.Until = runonce.UntilCompleted
	var got []string
	for _, r := range runonce.Run(ctx, f, plan, o) {
		text := []string{r.Pod.Name, string(r.Outcome)}
		if r.Reason != "" {
			text = append(text, r.Reason)
		}
		if r.Attempts > 1 {
			text = append(text, fmt.Sprint(r.Attempts))
		}
		got = append(got, strings.Join(text, " "))
	}
	return got
}

func TestJob(t *testing.T) {
	t.Parallel()
	flaky := failing(time.Second)
	flaky.afterStop = succeeding(time.Second).timeline
	crashing := func(n int32) script {
		return script{timeline: []moment{{0, running()}, {time.Second, with(v1.PodRunning, crashed(n))}}}
	}
	for _, c := range []struct {
		name    string
		policy  v1.RestartPolicy
		rules   string
		scripts map[string]script
		options runonce.Options
		want    []string
		elapsed time.Duration
	}{
		{
			name: "tried again until the limit is reached", rules: `"backoffLimit": 2`,
			scripts: map[string]script{"a": failing(time.Second)},
			want:    []string{"a Failed BackoffLimitExceeded 3"},
			elapsed: 3*time.Second + 10*time.Second + 20*time.Second,
		},
		{
			name: "tried again later if it fails at once", rules: `"backoffLimit": 2`,
			scripts: map[string]script{"a": failing(0)},
			want:    []string{"a Failed BackoffLimitExceeded 3"},
			elapsed: 10*time.Second + 20*time.Second,
		},
		{
			name: "a limit of 0", rules: `"backoffLimit": 0`,
			scripts: map[string]script{"a": failing(time.Second)},
			want:    []string{"a Failed BackoffLimitExceeded"}, elapsed: time.Second,
		},
		{
			name: "succeeds at the second try", rules: `"backoffLimit": 6`,
			scripts: map[string]script{"a": flaky},
			want:    []string{"a Succeeded 2"}, elapsed: 12 * time.Second,
		},
		{
			name: "a worker need not be retried when another one has succeeded", rules: `"completions": null`,
			scripts: map[string]script{"a": failing(2 * time.Minute), "b": succeeding(time.Minute)},
			want:    []string{"a Succeeded FailureIgnored", "b Succeeded"}, elapsed: 2 * time.Minute,
		},
		{
			name: "a worker waits for its retry when another one succeeds", rules: `"completions": null`,
			scripts: map[string]script{"a": failing(time.Second), "b": succeeding(5 * time.Second)},
			want:    []string{"a Succeeded FailureIgnored", "b Succeeded"}, elapsed: 5 * time.Second,
		},
		{
			name: "the failure of a worker counts after a success, too", rules: `"completions": null, "backoffLimit": 0`,
			scripts: map[string]script{"a": failing(time.Minute), "b": succeeding(time.Second)},
			want:    []string{"a Failed BackoffLimitExceeded", "b Succeeded"}, elapsed: time.Minute,
		},
		{
			name: "the run's retries bound it, too", rules: `"backoffLimit": 6`,
			scripts: map[string]script{"a": failing(time.Second)}, options: runonce.Options{Retry: runonce.Backoff{Factor: 1}},
			want: []string{"a Failed Error"}, elapsed: time.Second,
		},
		{
			name: "all pods count, and those that run are ended", rules: `"backoffLimit": 1`,
			scripts: map[string]script{"a": failing(time.Second), "b": succeeding(2 * time.Second), "c": succeeding(time.Hour)},
			want:    []string{"a Failed BackoffLimitExceeded 2", "b Succeeded", "c Failed BackoffLimitExceeded"},
			elapsed: 12 * time.Second,
		},
		{
			name: "an index has a limit of its own", rules: `"backoffLimit": 100, "backoffLimitPerIndex": 1`,
			scripts: map[string]script{"a": failing(time.Second), "b": succeeding(time.Minute)},
			want:    []string{"a Failed FailedIndexes 2", "b Succeeded"}, elapsed: time.Minute,
		},
		{
			name: "too many indexes", rules: `"backoffLimitPerIndex": 0, "maxFailedIndexes": 1`,
			scripts: map[string]script{"a": failing(time.Second), "b": failing(2 * time.Second), "c": succeeding(time.Hour)},
			want:    []string{"a Failed FailedIndexes", "b Failed MaxFailedIndexesExceeded", "c Failed MaxFailedIndexesExceeded"},
			elapsed: 2 * time.Second,
		},
		{
			name:    "failure policy fails the Job",
			rules:   `"backoffLimit": 6, "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]}`,
			scripts: map[string]script{"a": failing(time.Second), "b": succeeding(time.Hour)},
			want:    []string{"a Failed PodFailurePolicy", "b Failed PodFailurePolicy"}, elapsed: time.Second,
		},
		{
			name:    "failure policy ignores",
			rules:   `"backoffLimit": 0, "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [4]}}]}`,
			scripts: map[string]script{"a": flaky},
			want:    []string{"a Succeeded 2"}, elapsed: 12 * time.Second,
		},
		{
			name: "one at a time", rules: `"backoffLimit": 6, "parallelism": 1`,
			scripts: map[string]script{"a": succeeding(time.Minute), "b": flaky, "c": succeeding(time.Minute)},
			want:    []string{"a Succeeded", "b Succeeded 2", "c Succeeded"}, elapsed: 2*time.Minute + 12*time.Second,
		},
		{
			name: "those that wait for their turn fail with the Job", rules: `"backoffLimit": 0, "parallelism": 1`,
			scripts: map[string]script{"a": failing(time.Minute), "b": succeeding(time.Minute)},
			want:    []string{"a Failed BackoffLimitExceeded", "b Failed BackoffLimitExceeded"}, elapsed: time.Minute,
		},
		{
			name: "deadline", rules: `"backoffLimit": 6, "activeDeadlineSeconds": 15`,
			scripts: map[string]script{"a": failing(time.Second), "b": succeeding(5 * time.Second)},
			want:    []string{"a Failed DeadlineExceeded 2", "b Succeeded"}, elapsed: 15 * time.Second,
		},
		{
			name: "restarts within the limit", policy: v1.RestartPolicyOnFailure, rules: `"backoffLimit": 3`,
			scripts: map[string]script{"a": {timeline: []moment{
				{0, with(v1.PodRunning, crashed(2))}, {time.Second, with(v1.PodSucceeded, restarted(ended(0), 3))},
			}}},
			want: []string{"a Succeeded 4"}, elapsed: time.Second,
		},
		{
			name: "restarts beyond the limit", policy: v1.RestartPolicyOnFailure, rules: `"backoffLimit": 2`,
			scripts: map[string]script{"a": crashing(2), "b": succeeding(time.Hour)},
			want:    []string{"a Failed BackoffLimitExceeded 3", "b Failed BackoffLimitExceeded"}, elapsed: time.Second,
		},
		{
			name: "restarts of all pods together", policy: v1.RestartPolicyOnFailure, rules: `"backoffLimit": 4`,
			scripts: map[string]script{"a": crashing(2), "b": crashing(2)},
			want:    []string{"a Failed BackoffLimitExceeded 3", "b Failed BackoffLimitExceeded 3"},
			elapsed: time.Second,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				policy := c.policy
				if policy == "" {
					policy = v1.RestartPolicyNever
				}
				f := &fake{scripts: c.scripts}
				var pods []*v1.Pod
				for _, name := range []string{"a", "b", "c"} {
					if _, ok := c.scripts[name]; ok {
						pods = append(pods, jobPod(name, policy, c.rules))
					}
				}
				begin := time.Now()
				if d := cmp.Diff(c.want, runJobs(t.Context(), f, admitted(pods...), c.options)); d != "" {
					t.Error(d)
				}
				want(t, "elapsed", time.Since(begin), c.elapsed)
			})
		})
	}
}

// TestJobOfEarlierRun: failures of earlier runs count for a pod that still ran when this one was
// planned.
func TestJobOfEarlierRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		failures string
		status   v1.PodStatus
		want     []string
	}{
		{"in its back-off", "1", with(v1.PodFailed, ended(3)), []string{"a Succeeded", "b Succeeded"}},
		{"at its limit", "2", with(v1.PodFailed, ended(3)), []string{"a Failed BackoffLimitExceeded", "b Failed BackoffLimitExceeded"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rules = `"backoffLimit": 2, "parallelism": 1`
				a, b := jobPod("a", v1.RestartPolicyNever, rules), jobPod("b", v1.RestartPolicyNever, rules)
				was := a.DeepCopy()
				was.Annotations["runonce/job-failures"] = c.failures
				was.Status = c.status
				f := &fake{
					scripts: map[string]script{"a": {before: &c.status, timeline: []moment{{0, c.status}}, afterStop: succeeding(time.Second).timeline}, "b": succeeding(time.Second)},
					earlier: []*v1.Pod{was},
				}
				plan := admitted(a, b)
				plan.Decisions[0].Running = true
				if d := cmp.Diff(c.want, runJobs(t.Context(), f, plan, runonce.Options{})); d != "" {
					t.Error(d)
				}
				if c.want[1] != "b Succeeded" && slices.Contains(f.calls, "sync b") {
					t.Error("b was started")
				}
			})
		})
	}
}

// TestJobInterrupted: a run that is interrupted in a back-off reports what it waited for.
func TestJobInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{scripts: map[string]script{"a": failing(time.Second)}}
		o := runonce.Options{Until: runonce.UntilCompleted, Timeout: 5 * time.Second}
		r := runonce.Run(t.Context(), f, admitted(jobPod("a", v1.RestartPolicyNever, `"backoffLimit": 2`)), o)[0]
		want(t, "outcome", r.Outcome, runonce.TimedOut)
		want(t, "message", r.Message, `retrying in 10s: container "c" exited with code 3`)
	})
}

// resetting is a runtime with Reset, whose error is that another process has taken the pods.
type resetting struct {
	*fake
	err error
}

func (r resetting) Reset(_ context.Context, pod *v1.Pod) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note("reset %s", pod.Name)
	return r.err
}

// TestJobPodTaken: a pod that another process has stopped is not retried by its Job.
func TestJobPodTaken(t *testing.T) {
	t.Parallel()
	stopped := with(v1.PodFailed, ended(143))
	stopped.Reason = "Stopped"
	for _, c := range []struct {
		name   string
		script script
		resets int
	}{
		{"while it runs", script{timeline: []moment{{0, running()}, {time.Minute, stopped}}}, 0},
		{"while it waits to be retried", failing(time.Minute), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{scripts: map[string]script{"web": c.script}}
				plan := admitted(jobPod("web", v1.RestartPolicyNever, `"backoffLimit": 5`))
				got := runonce.Run(t.Context(), resetting{f, preemptedError{syncError{"stopped by another process", "Stopped", true, 0}, nil}}, plan, runonce.Options{Until: runonce.UntilCompleted})
				want(t, "outcome", outcomes(got)[0], "Failed Stopped")
				want(t, "resets", count(f.calls, "reset web"), c.resets)
				want(t, "stops", count(f.calls, "stop web"), 0)
			})
		})
	}
}

// TestJobFailsMeanwhile: the failure of a Job ends its pods whatever they wait for: a slot, or a runtime
// that does not answer, which is asked as often as the schedule says.
func TestJobFailsMeanwhile(t *testing.T) {
	t.Parallel()
	silent := runs()
	silent.status = func(int) error {
		if after := time.Since(bubbleStart); 500*time.Millisecond < after && after < 6*time.Second {
			return errBroken
		}
		return nil
	}
	for _, c := range []struct {
		name    string
		b       script
		elapsed time.Duration
		retries int
		syncs   int
	}{
		{"waits for a slot", runs(), time.Second, 0, 0},
		{"runs, and its status is unknown", silent, 8 * time.Second, 3, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				busy := runs()
				busy.syncTakes = time.Hour
				f := &fake{scripts: map[string]script{"a": failing(time.Second), "b": c.b, "busy": busy}}
				a, b, other := jobPod("a", v1.RestartPolicyNever, `"backoffLimit": 0`), jobPod("b", v1.RestartPolicyNever, `"backoffLimit": 0`), newPod("busy", "")
				plan, o := admitted(a, b), runonce.Options{Until: runonce.UntilCompleted, Retry: runonce.Backoff{Delay: time.Second, Factor: 2, Retries: 5}}
				if c.syncs == 0 {
					plan, o.Parallel = admitted(a, other, b), 1
				}
				retries := 0
				o.Progress = func(e runonce.Progress) {
					if e.Pod.Name == "b" && e.State == "Retrying" {
						retries++
					}
				}
				got := runonce.Run(t.Context(), f, plan, o)
				last := got[len(got)-1]
				want(t, "outcome", last.Outcome, runonce.Failed)
				want(t, "reason", last.Reason, "BackoffLimitExceeded")
				want(t, "elapsed", last.Elapsed, c.elapsed)
				want(t, "retries", retries, c.retries)
				want(t, "syncs", count(f.calls, "sync b"), c.syncs)
			})
		})
	}
}
