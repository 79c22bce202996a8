package runonce_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
)

// concluding is a runtime that keeps outcomes.
type concluding struct {
	*fake
	mu   sync.Mutex
	said []string
}

func (c *concluding) Conclude(_ context.Context, pod *v1.Pod, outcome, reason, message string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, fmt.Sprintf("%s %s %s: %s", pod.Name, outcome, reason, message))
	return nil
}

func (c *concluding) check(t *testing.T, want ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.said, want) {
		t.Errorf("concluded %q, want %q", c.said, want)
	}
}

// TestConclude: the runtime is told the outcome of each pod once, as soon as it is final, or else when
// the results are known.
func TestConclude(t *testing.T) {
	t.Parallel()
	giveUp := []moment{{0, with(v1.PodRunning, crashed(0))}, {time.Second, with(v1.PodRunning, crashed(1))}}
	for _, c := range []struct {
		name    string
		script  script
		options runonce.Options
		want    []string
	}{
		{"at its goal", runs(), runonce.Options{}, []string{"a Running : "}},
		{
			"given up",
			script{timeline: giveUp},
			runonce.Options{MaxRestarts: new(int)},
			[]string{`a Failed CrashLoopBackOff: container "c" exited with code 1; gave up after 0 restarts`},
		},
		{
			"timed out",
			script{timeline: []moment{{0, with(v1.PodRunning, unready())}}},
			runonce.Options{Until: runonce.UntilReady, Timeout: time.Minute},
			[]string{`a TimedOut ContainersNotReady: container "c" is running but not ready`},
		},
		{
			"cannot be started",
			script{sync: always(errBadName)},
			runonce.Options{},
			[]string{"a Failed InvalidImageName: invalid reference"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := &concluding{fake: &fake{scripts: map[string]script{"a": c.script}}}
				runonce.Run(t.Context(), rt, admitted(newPod("a", v1.RestartPolicyAlways)), c.options)
				rt.check(t, c.want...)
			})
		})
	}
}

// TestConcludeBeforeTheEnd: a pod that has failed is concluded while the run still waits for others.
func TestConcludeBeforeTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := &concluding{fake: &fake{scripts: map[string]script{
			"bad": {timeline: []moment{{0, with(v1.PodFailed, ended(3))}}},
			"job": {timeline: []moment{{0, running()}, {time.Hour, with(v1.PodSucceeded, ended(0))}}},
		}}}
		time.AfterFunc(time.Minute, func() { rt.check(t, `bad Failed Error: container "c" exited with code 3`) })
		runonce.Run(t.Context(), rt, admitted(newPod("bad", v1.RestartPolicyNever), newPod("job", v1.RestartPolicyNever)), runonce.Options{Until: runonce.UntilCompleted})
		rt.check(t, `bad Failed Error: container "c" exited with code 3`, "job Succeeded : ")
	})
}

// TestConcludeOfEarlierRun: what is said of a pod that an earlier run has started does not say how long
// ago that was, and nothing is said of a pod that was not started.
func TestConcludeOfEarlierRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done := with(v1.PodSucceeded, ended(0))
		rt := &concluding{fake: &fake{scripts: map[string]script{"job": {before: &done}}}}
		plan := admit.Plan{Decisions: []admit.Decision{
			{Pod: newPod("job", v1.RestartPolicyNever), Verdict: admit.Admitted, Running: true}, {Pod: newPod("no", ""), Verdict: admit.Rejected},
		}}
		runonce.Run(t.Context(), rt, plan, runonce.Options{})
		rt.check(t, "job Succeeded : ")
	})
}

// TestConcludeWhileKept: a pod that leaves its goal has no outcome until it has reached it again. At
// the end, that counts what an interruption found; not what a new plan has cut off.
func TestConcludeWhileKept(t *testing.T) {
	t.Parallel()
	crash := []moment{{0, running()}, {time.Minute, with(v1.PodRunning, crashed(0))}}
	for _, c := range []struct {
		name      string
		timeline  []moment
		interrupt bool
		want      []string
	}{
		{"and back", append(slices.Clone(crash), moment{2 * time.Minute, with(v1.PodRunning, restarted(up(), 1))}), false, []string{"a Running : ", "a  : ", "a Running : "}},
		{"another plan", crash, false, []string{"a Running : ", "a  : "}},
		{
			"interrupted", crash, true,
			[]string{"a Running : ", "a  : ", `a Canceled CrashLoopBackOff: container "c" is waiting: CrashLoopBackOff; before that it exited with code 1`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := &concluding{fake: &fake{scripts: map[string]script{"a": {timeline: c.timeline}}}}
				ctx, cancel := context.WithCancel(t.Context())
				over := make(chan struct{})
				time.AfterFunc(time.Hour, func() {
					if c.interrupt {
						cancel()
					} else {
						close(over)
					}
				})
				runonce.Run(ctx, rt, admitted(newPod("a", v1.RestartPolicyAlways)), runonce.Options{Keep: over})
				cancel()
				rt.check(t, c.want...)
			})
		})
	}
}
