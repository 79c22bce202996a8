package runonce_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
)

var (
	errBroken  = errors.New("broken")
	errBadName = syncError{text: "invalid reference", reason: "InvalidImageName", perm: true}
)

func always(err error) func(int) error { return func(int) error { return err } }

func failFirst(n int, err error) func(int) error {
	return func(i int) error {
		if i <= n {
			return err
		}
		return nil
	}
}

// busy asks for seven seconds.
type busy struct{ error }

func (busy) RetryDelay() time.Duration { return 7 * time.Second }

// fiveRetries is an error that allows five retries.
type fiveRetries struct{ error }

func (fiveRetries) Retries() int { return 5 }

// TestOnePod tests the result of a single pod.
func TestOnePod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		policy   v1.RestartPolicy
		script   script
		options  runonce.Options
		outcome  runonce.Outcome
		reason   string
		message  string // a part of it
		attempts int
		restarts int
		elapsed  time.Duration
		syncs    int
	}{
		{
			name: "runs at once", script: runs(),
			outcome: runonce.Running, attempts: 1, syncs: 1,
		},
		{
			name:    "seen by its event, not at the next poll",
			script:  script{timeline: []moment{{0, with(v1.PodPending, waiting("ContainerCreating"))}, {300 * time.Millisecond, running()}}},
			outcome: runonce.Running, attempts: 1, syncs: 1, elapsed: 300 * time.Millisecond,
		},
		{
			name:    "without events the poll sees it",
			script:  script{noEvents: true, timeline: []moment{{0, with(v1.PodPending)}, {300 * time.Millisecond, running()}}},
			outcome: runonce.Running, attempts: 1, syncs: 1, elapsed: 10 * time.Second,
		},
		{
			name: "transient errors follow the schedule", script: script{sync: failFirst(3, errBroken), timeline: runs().timeline},
			outcome: runonce.Running, attempts: 4, syncs: 4, elapsed: 7 * time.Second,
		},
		{
			name: "ten retries, then failed", script: script{sync: always(errBroken)},
			outcome: runonce.Failed, reason: "SyncError", message: "broken (gave up after 10 retries)",
			attempts: 11, syncs: 11, elapsed: 1023 * time.Second,
		},
		{
			name: "an error that says that five retries will do", script: script{sync: always(fiveRetries{errBroken})},
			outcome: runonce.Failed, reason: "SyncError", message: "broken (gave up after 5 retries)",
			attempts: 6, syncs: 6, elapsed: 31 * time.Second,
		},
		{
			name: "reason of the last error", script: script{sync: always(syncError{text: "pulling: 503", reason: "ErrImagePull"})},
			options: runonce.Options{Retry: runonce.Backoff{Delay: time.Second, Factor: 1, Retries: 2}},
			outcome: runonce.Failed, reason: "ErrImagePull", message: "pulling: 503",
			attempts: 3, syncs: 3, elapsed: 2 * time.Second,
		},
		{
			name: "permanent error fails at once", script: script{sync: always(errBadName)},
			outcome: runonce.Failed, reason: "InvalidImageName", message: "invalid reference", attempts: 1, syncs: 1,
		},
		{
			name:    "an error that asks for time gets it and uses no retry",
			script:  script{sync: failFirst(20, syncError{text: "busy", after: time.Minute}), timeline: runs().timeline},
			outcome: runonce.Running, attempts: 1, syncs: 21, elapsed: 20 * time.Minute,
		},
		{
			name: "an error that asks for a delay waits so long, and uses a retry", script: script{sync: always(busy{errBroken})},
			options: runonce.Options{Retry: runonce.Backoff{Delay: time.Second, Factor: 10, Retries: 3}},
			outcome: runonce.Failed, reason: "SyncError", message: "broken (gave up after 3 retries)",
			attempts: 4, syncs: 4, elapsed: (7 + 10 + 100) * time.Second,
		},
		{
			name:    "job ends with 0",
			policy:  v1.RestartPolicyNever,
			script:  script{timeline: []moment{{0, with(v1.PodSucceeded, ended(0))}}},
			outcome: runonce.Succeeded, attempts: 1, syncs: 2, // the second lets go of the sandbox
		},
		{
			name:    "job fails",
			policy:  v1.RestartPolicyNever,
			script:  script{timeline: []moment{{0, with(v1.PodFailed, ended(3))}}},
			outcome: runonce.Failed, reason: "Error", message: `container "c" exited with code 3`, attempts: 1, syncs: 2,
		},
		{
			name:    "long job uses up no schedule",
			policy:  v1.RestartPolicyNever,
			options: runonce.Options{Until: runonce.UntilCompleted},
			script:  script{timeline: []moment{{0, running()}, {5 * time.Hour, with(v1.PodSucceeded, ended(0))}}},
			outcome: runonce.Succeeded, attempts: 1, syncs: 1801, elapsed: 5 * time.Hour,
		},
		{
			name:    "completed: an Always pod must be ready",
			options: runonce.Options{Until: runonce.UntilCompleted},
			script:  script{timeline: []moment{{0, with(v1.PodRunning, unready())}, {9 * time.Second, running()}}},
			outcome: runonce.Ready, attempts: 1, syncs: 1, elapsed: 9 * time.Second,
		},
		{
			name:    "ready waits for the probe",
			options: runonce.Options{Until: runonce.UntilReady},
			script:  script{timeline: []moment{{0, with(v1.PodRunning, unready())}, {3 * time.Second, running()}}},
			outcome: runonce.Ready, attempts: 1, syncs: 1, elapsed: 3 * time.Second,
		},
		{
			name: "settle waits until the container has run for a while", script: runs(),
			options: runonce.Options{Settle: 2 * time.Second},
			outcome: runonce.Running, attempts: 1, syncs: 1, elapsed: 2 * time.Second,
		},
		{
			name:    "settle sees the crash",
			policy:  v1.RestartPolicyNever,
			options: runonce.Options{Settle: 2 * time.Second},
			script:  script{timeline: []moment{{0, running()}, {time.Second, with(v1.PodFailed, ended(1))}}},
			outcome: runonce.Failed, reason: "Error", message: "exited with code 1",
			attempts: 1, syncs: 2, elapsed: time.Second,
		},
		{
			name: "crashes, then runs",
			script: script{
				sync: func(n int) error {
					if n == 2 {
						return syncError{text: "back-off 10s", reason: "CrashLoopBackOff", after: 10 * time.Second}
					}
					return nil
				},
				timeline: []moment{{0, with(v1.PodPending, waiting("ContainerCreating"))}, {time.Second, with(v1.PodRunning, crashed(0))}, {11 * time.Second, with(v1.PodRunning, restarted(up(), 1))}},
			},
			outcome: runonce.Running, attempts: 2, restarts: 1, syncs: 2, elapsed: 11 * time.Second,
		},
		{
			name:    "crashes once more than it may be restarted",
			options: runonce.Options{MaxRestarts: new(2)},
			script: script{timeline: []moment{
				{0, with(v1.PodRunning, crashed(0))},
				{time.Second, with(v1.PodRunning, crashed(1))},
				{2 * time.Second, with(v1.PodRunning, crashed(2))},
			}},
			outcome: runonce.Failed, reason: "CrashLoopBackOff", message: `container "c" exited with code 1; gave up after 2 restarts`,
			attempts: 3, restarts: 2, syncs: 2, elapsed: 2 * time.Second,
		},
		{
			name: "status unknown is afterStop", script: script{status: failFirst(2, errBroken), timeline: runs().timeline},
			outcome: runonce.Running, attempts: 3, syncs: 1, elapsed: 3 * time.Second,
		},
		{
			name: "timeout says what is waited for", script: script{timeline: []moment{{0, with(v1.PodPending, waiting("ContainerCreating"))}}},
			options: runonce.Options{Timeout: 35 * time.Second},
			outcome: runonce.TimedOut, reason: "ContainerCreating", message: `container "c" is waiting: ContainerCreating`,
			attempts: 1, syncs: 4, elapsed: 35 * time.Second,
		},
		{
			name: "timeout in the middle of a retry says why", script: script{sync: always(syncError{text: "pulling: 503", reason: "ErrImagePull"})},
			options: runonce.Options{Timeout: 2 * time.Second},
			outcome: runonce.TimedOut, reason: "ErrImagePull", message: "pulling: 503",
			attempts: 3, syncs: 2, elapsed: 2 * time.Second,
		},
		{
			name: "timeout while syncing", script: script{syncTakes: time.Hour},
			options: runonce.Options{Timeout: 2 * time.Second},
			outcome: runonce.TimedOut, reason: "ContainerCreating", message: `container "c" has not been started`,
			attempts: 1, syncs: 1, elapsed: 2 * time.Second,
		},
		{
			name: "timeout while syncing says what hung", script: script{syncTakes: time.Hour, interrupted: errors.New(`plugin type="slow" failed (add): context canceled`)},
			options: runonce.Options{Timeout: 2 * time.Second},
			outcome: runonce.TimedOut, reason: "ContainerCreating",
			message:  `container "c" has not been started; interrupted: plugin type="slow" failed (add): context canceled`,
			attempts: 1, syncs: 1, elapsed: 2 * time.Second,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := &fake{scripts: map[string]script{"web": c.script}}
				pod := newPod("web", c.policy)
				got := runonce.Run(t.Context(), rt, admitted(pod), c.options)[0]
				want(t, "outcome", got.Outcome, c.outcome)
				want(t, "reason", got.Reason, c.reason)
				if !strings.Contains(got.Message, c.message) {
					t.Errorf("message %q has no %q", got.Message, c.message)
				}
				want(t, "attempts", got.Attempts, c.attempts)
				want(t, "restarts", got.Restarts, c.restarts)
				want(t, "elapsed", got.Elapsed, c.elapsed)
				want(t, "syncs", rt.pods[pod.UID].syncs, c.syncs)
			})
		})
	}
}

// TestDiesWhileOthersStart: a pod at its goal that dies while the run waits for others does not
// succeed, unless it recovers in time.
func TestDiesWhileOthersStart(t *testing.T) {
	t.Parallel()
	slow := script{timeline: []moment{{0, with(v1.PodPending)}, {time.Minute, running()}}}
	for _, c := range []struct {
		name     string
		policy   v1.RestartPolicy
		timeline []moment
		want     runonce.Outcome
	}{
		{"dies for good", v1.RestartPolicyNever, []moment{{0, running()}, {30 * time.Second, with(v1.PodFailed, ended(1))}}, runonce.Failed},
		{"dies as the last one arrives", v1.RestartPolicyNever, []moment{{0, running()}, {time.Minute, with(v1.PodFailed, ended(1))}}, runonce.Failed},
		{"ends well", v1.RestartPolicyNever, []moment{{0, running()}, {30 * time.Second, with(v1.PodSucceeded, ended(0))}}, runonce.Succeeded},
		{"healed in time", v1.RestartPolicyAlways, []moment{{0, running()}, {30 * time.Second, with(v1.PodRunning, crashed(0))}, {40 * time.Second, with(v1.PodRunning, restarted(up(), 1))}}, runonce.Running},
		{"healed later", v1.RestartPolicyAlways, []moment{{0, running()}, {time.Minute, with(v1.PodRunning, crashed(0))}, {2 * time.Minute, with(v1.PodRunning, restarted(up(), 1))}}, runonce.Running},
		{"never healed", v1.RestartPolicyAlways, []moment{{0, running()}, {time.Minute, with(v1.PodRunning, crashed(0))}}, runonce.TimedOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := &fake{scripts: map[string]script{"a": {timeline: c.timeline}, "b": slow}}
				got := runonce.Run(t.Context(), rt, admitted(newPod("a", c.policy), newPod("b", "")), runonce.Options{Timeout: time.Hour})
				want(t, "a", got[0].Outcome, c.want)
				want(t, "b", got[1].Outcome, runonce.Running)
			})
		})
	}
}

// TestUnreadyWhileOthersStart: a pod that was ready and is not at the end has not reached its goal.
func TestUnreadyWhileOthersStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := &fake{scripts: map[string]script{
			"a": {timeline: []moment{{0, running()}, {30 * time.Second, with(v1.PodRunning, unready())}}},
			"b": {timeline: []moment{{0, with(v1.PodPending)}, {time.Minute, running()}}},
		}}
		got := outcomes(runonce.Run(t.Context(), rt, admitted(newPod("a", ""), newPod("b", "")), runonce.Options{Until: runonce.UntilReady, Timeout: time.Hour}))
		if diff := cmp.Diff([]string{"TimedOut ContainersNotReady", "Ready"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func critical(p *v1.Pod) *v1.Pod {
	priority := int32(2_000_001_000)
	p.Spec.Priority = &priority
	return p
}

// TestStopsFirst: nothing starts before the pods that the plan stops have stopped.
func TestStopsFirst(t *testing.T) {
	t.Parallel()
	victim, boss, old, changed, gone, other := newPod("victim", ""), critical(newPod("boss", "")), newPod("web", ""), newPod("web", ""), newPod("gone", ""), newPod("other", "")
	old.UID = "uid-old"
	plan := admit.Plan{Decisions: []admit.Decision{
		{Pod: changed, Verdict: admit.Admitted, Replaces: []*v1.Pod{old}},
		{Pod: other, Verdict: admit.Admitted},
		{Pod: boss, Verdict: admit.Admitted},
		{Pod: victim, Verdict: admit.Preempted, Running: true, By: boss, Reason: "Preempting", Message: "makes room"},
		{Pod: gone, Verdict: admit.Admitted, Prune: true},
	}}
	scripts := func(s script) map[string]script {
		return map[string]script{"web": runs(), "boss": runs(), "other": runs(), "victim": s, "gone": {}}
	}
	t.Run("in order", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			rt := &fake{scripts: scripts(script{stopTakes: 30 * time.Second})}
			got := outcomes(runonce.Run(t.Context(), rt, plan, runonce.Options{Parallel: 1}))
			if diff := cmp.Diff([]string{"Running", "Running", "Running", "Preempted Preempting", "Succeeded Pruned"}, got); diff != "" {
				t.Error(diff)
			}
			calls := strings.Join(rt.calls, ", ")
			if !strings.HasSuffix(calls, "stopped victim, sync boss, sync web, sync other") {
				t.Errorf("calls: %s", calls)
			}
		})
	})
	t.Run("a victim that stays keeps its preemptor out", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			rt := &fake{scripts: scripts(script{stop: always(errBroken)})}
			results := runonce.Run(t.Context(), rt, plan, runonce.Options{})
			if diff := cmp.Diff([]string{"Running", "Running", "Failed StopFailed", "Failed StopFailed", "Succeeded Pruned"}, outcomes(results)); diff != "" {
				t.Error(diff)
			}
			want(t, "message", results[2].Message, `stopping pod "victim", which is preempted: broken`)
			want(t, "syncs of the preemptor", rt.pods[boss.UID] == nil, true)
		})
	})
	t.Run("an earlier pod that stays keeps its successor out", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := scripts(script{})
			s["web"] = script{stop: always(errBroken), timeline: runs().timeline}
			got := outcomes(runonce.Run(t.Context(), &fake{scripts: s}, plan, runonce.Options{}))
			want(t, "web", got[0], "Failed StopFailed")
			want(t, "boss", got[2], "Running")
		})
	})
	t.Run("deadline while stopping", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			rt := &fake{scripts: scripts(script{stopTakes: time.Hour})}
			got := outcomes(runonce.Run(t.Context(), rt, plan, runonce.Options{Timeout: time.Minute}))
			if diff := cmp.Diff([]string{"TimedOut NotStarted", "TimedOut NotStarted", "TimedOut StopFailed", "TimedOut StopFailed", "Succeeded Pruned"}, got); diff != "" {
				t.Error(diff)
			}
		})
	})
}

func outcomes(rs []runonce.Result) []string {
	out := make([]string, 0, len(rs))
	for _, r := range rs {
		out = append(out, strings.TrimSpace(string(r.Outcome)+" "+r.Reason))
	}
	return out
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

// BenchmarkRun measures the loop itself for a node full of pods.
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
