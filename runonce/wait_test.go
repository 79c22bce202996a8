package runonce

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// as returns the pod with a status.
func as(pod *v1.Pod, phase v1.PodPhase, inits []v1.ContainerStatus, containers ...v1.ContainerStatus) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Status = v1.PodStatus{Phase: phase, InitContainerStatuses: inits, ContainerStatuses: containers}
	return pod
}

// TestJudgeObserved: when a pod that others manage has reached the goal, and when it can never reach it.
func TestJudgeObserved(t *testing.T) {
	t.Parallel()
	always := v1.ContainerRestartPolicyAlways
	plain, sidecar := v1.Container{Name: "i"}, v1.Container{Name: "s", RestartPolicy: &always}
	web, job, retried := newPod(v1.RestartPolicyAlways, nil, "a"), newPod(v1.RestartPolicyNever, nil, "a", "b"), newPod(v1.RestartPolicyOnFailure, nil, "a")
	prepared, served := newPod(v1.RestartPolicyNever, []v1.Container{plain}, "a"), newPod(v1.RestartPolicyNever, []v1.Container{sidecar}, "a")
	backOff := waiting("a", "CrashLoopBackOff", "back-off 20s")
	const crashing = `container "a" is waiting: CrashLoopBackOff: back-off 20s`
	const nobody = "; nothing starts or stops its containers, since no run or watch of the pod goes on"
	for _, c := range []struct {
		name  string
		until Until
		seen  Observed
		want  condition
	}{
		{name: "deleted", until: UntilDeleted, want: condition{outcome: Removed, ended: true}},
		{name: "preempted and so deleted", until: UntilDeleted, seen: Observed{Outcome: Preempted}, want: condition{outcome: Removed, ended: true}},
		{
			name: "not deleted", until: UntilDeleted, seen: Observed{Pod: as(web, v1.PodFailed, nil)},
			want: condition{reason: "PodExists", message: "the pod still exists"},
		},
		{name: "gone", until: UntilReady, want: failed("NotFound", "the pod does not exist any more")},
		{
			name: "preempted", until: UntilRunning, seen: Observed{Outcome: Preempted, Reason: "Preempting", Message: "by x"},
			want: condition{outcome: Preempted, ended: true, reason: "Preempting", message: "by x"},
		},
		{name: "running", until: UntilRunning, seen: Observed{Pod: as(web, v1.PodRunning, nil, running("a", false, time.Minute))}, want: condition{outcome: Running}},
		{
			name: "not ready, and may become so by itself", until: UntilReady, seen: Observed{Pod: as(web, v1.PodRunning, nil, running("a", false, time.Minute))},
			want: condition{reason: "ContainersNotReady", message: `container "a" is running but not ready`},
		},
		{
			name: "back-off of a pod that is managed", until: UntilRunning, seen: Observed{Pod: as(web, v1.PodRunning, nil, backOff), Managed: true},
			want: condition{reason: "CrashLoopBackOff", message: crashing},
		},
		{
			name: "back-off of a pod that nobody manages", until: UntilRunning, seen: Observed{Pod: as(web, v1.PodRunning, nil, backOff)},
			want: failed("CrashLoopBackOff", crashing+nobody),
		},
		{
			name: "given up by a watch that goes on", until: UntilReady,
			seen: Observed{Pod: as(web, v1.PodRunning, nil, backOff), Managed: true, Outcome: Failed, Reason: "CrashLoopBackOff", Message: "gave up"},
			want: failed("CrashLoopBackOff", "gave up"),
		},
		{
			name: "given up, and yet it runs", until: UntilRunning,
			seen: Observed{Pod: as(web, v1.PodRunning, nil, running("a", false, time.Minute)), Outcome: Failed, Reason: "X"}, want: condition{outcome: Running},
		},
		{
			name: "timed out, and can still complete", until: UntilCompleted,
			seen: Observed{Pod: as(job, v1.PodRunning, nil, running("a", true, time.Minute), ended("b", 0)), Outcome: TimedOut},
			want: condition{reason: "PodNotCompleted", message: `still running: "a"`},
		},
		{
			name: "one has failed while another runs", until: UntilCompleted,
			seen: Observed{Pod: as(job, v1.PodRunning, nil, running("a", true, time.Minute), ended("b", 1))},
			want: condition{reason: "Error", message: `container "b" exited with code 1`},
		},
		{name: "completed", until: UntilCompleted, seen: Observed{Pod: as(job, v1.PodSucceeded, nil, ended("a", 0), ended("b", 0))}, want: condition{outcome: Succeeded, ended: true}},
		{
			name: "failed", until: UntilReady, seen: Observed{Pod: as(job, v1.PodFailed, nil, ended("a", 0), ended("b", 3)), Managed: true},
			want: failed("Error", `container "b" exited with code 3`),
		},
		{
			name: "failed before this run, which runs it again", until: UntilReady, seen: Observed{Pod: as(job, v1.PodFailed, nil, ended("a", 0), ended("b", 3)), Managed: true, Undecided: true},
			want: condition{reason: "Error", message: `container "b" exited with code 3`},
		},
		{
			name: "will not be restarted", until: UntilCompleted, seen: Observed{Pod: as(retried, v1.PodRunning, nil, ended("a", 3))},
			want: failed("Error", `container "a" exited with code 3`+nobody),
		},
		{
			name: "the init container runs, and nobody starts what comes after", until: UntilRunning,
			seen: Observed{Pod: as(prepared, v1.PodPending, []v1.ContainerStatus{running("i", false, time.Minute)}, waiting("a", "PodInitializing", ""))},
			want: failed("PodInitializing", `init container "i" has not ended yet`+nobody),
		},
		{
			name: "the init container is done", until: UntilRunning, seen: Observed{Pod: as(prepared, v1.PodRunning, []v1.ContainerStatus{ended("i", 0)}, running("a", true, time.Minute))},
			want: condition{outcome: Running},
		},
		{
			name: "nobody stops the sidecar", until: UntilCompleted, seen: Observed{Pod: as(served, v1.PodRunning, []v1.ContainerStatus{running("s", true, time.Minute)}, ended("a", 0))},
			want: failed("PodNotCompleted", `every container has exited with code 0; waiting for sidecar "s" to stop`+nobody),
		},
		{
			name: "admitted by a run that has not started it", until: UntilRunning, seen: Observed{Pod: as(web, v1.PodPending, nil), Managed: true, Undecided: true},
			want: condition{reason: "ContainerCreating", message: `container "a" has not been started`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := history{}
			if c.seen.Pod != nil {
				h = newHistory(c.seen.Pod.Status)
			}
			got := goal{until: c.until, settle: time.Second}.judgeObserved(c.seen, h, now)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(condition{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// sights is an Observer that sees what has been scripted for each pod, from a time on.
type sights struct {
	begin   time.Time
	scripts map[string][]sight
	silent  bool // nothing wakes
}

type sight struct {
	at   time.Duration
	seen Observed
	err  error
}

func (s sights) Observe(_ context.Context, pod *v1.Pod) (seen Observed, err error) {
	for _, one := range s.scripts[pod.Name] {
		if time.Since(s.begin) >= one.at {
			seen, err = one.seen, one.err
		}
	}
	return seen, err
}

func (s sights) Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error) {
	if s.silent {
		return nil, errors.New("no events")
	}
	ch := make(chan struct{}, 1)
	for _, one := range s.scripts[pod.Name] {
		time.AfterFunc(time.Until(s.begin.Add(one.at)), func() {
			select {
			case ch <- struct{}{}:
			default:
			}
		})
	}
	return ch, ctx.Err()
}

// TestWait: each pod is waited for until it is at its goal or cannot reach it, or the time is over.
func TestWait(t *testing.T) {
	t.Parallel()
	named := func(name string, phase v1.PodPhase, cs v1.ContainerStatus) Observed {
		pod := as(newPod(v1.RestartPolicyNever, nil, "a"), phase, nil, cs)
		pod.Name = name
		return Observed{Pod: pod}
	}
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			s := sights{begin: begin, silent: silent, scripts: map[string][]sight{
				"done":    {{0, named("done", v1.PodRunning, running("a", true, 0)), nil}, {30 * time.Second, named("done", v1.PodSucceeded, ended("a", 0)), nil}},
				"fails":   {{0, named("fails", v1.PodRunning, running("a", true, 0)), nil}, {20 * time.Second, named("fails", v1.PodFailed, ended("a", 3)), nil}},
				"gone":    {{0, named("gone", v1.PodRunning, running("a", true, 0)), nil}, {10 * time.Second, Observed{}, nil}},
				"slow":    {{0, named("slow", v1.PodRunning, running("a", true, 0)), nil}},
				"blinks":  {{0, Observed{}, errors.New("no engine")}, {20 * time.Second, named("blinks", v1.PodSucceeded, ended("a", 0)), nil}},
				"unknown": {{0, Observed{}, errors.New("no engine")}},
				"lost":    {{0, Observed{}, &failure.Error{Why: "ClusterLost", Final: true, Err: errors.New("no server")}}},
			}}
			names := []string{"done", "fails", "gone", "slow", "blinks", "unknown", "lost"}
			var pods []*v1.Pod
			for _, name := range names {
				pod := newPod(v1.RestartPolicyNever, nil, "a")
				pod.Name = name
				pods = append(pods, pod)
			}
			done := 0
			results := Wait(t.Context(), s, pods, Options{Until: UntilCompleted, Timeout: 2 * time.Minute, Start: begin, Progress: func(p Progress) { done = p.Done }})
			if took := time.Since(begin); took != 2*time.Minute {
				t.Errorf("took %s", took)
			}
			if done != len(names)-1 {
				t.Errorf("%d pods were reported as done", done)
			}
			type result struct {
				name    string
				outcome Outcome
				reason  string
				elapsed time.Duration
			}
			got := make([]result, 0, len(results))
			for _, r := range results {
				got = append(got, result{r.Pod.Name, r.Outcome, r.Reason, r.Elapsed})
			}
			want := []result{
				{"done", Succeeded, "", 30 * time.Second},
				{"fails", Failed, "Error", 20 * time.Second},
				{"gone", Failed, "NotFound", 10 * time.Second},
				{"slow", TimedOut, "PodNotCompleted", 2 * time.Minute},
				{"blinks", Succeeded, "", 20 * time.Second},
				{"unknown", Failed, reasonUnknown, unknownFor},
				{"lost", Failed, "ClusterLost", 0},
			}
			if !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

// TestWaitLooksOnce: what is already so counts although the timeout has passed, and what is not has its reason.
func TestWaitLooksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		done, slow := newPod(v1.RestartPolicyNever, nil, "a"), newPod(v1.RestartPolicyNever, nil, "a")
		done.Name, slow.Name = "done", "slow"
		s := sights{begin: begin, scripts: map[string][]sight{
			"done": {{0, Observed{Pod: as(done, v1.PodSucceeded, nil, ended("a", 0))}, nil}},
			"slow": {{0, Observed{Pod: as(slow, v1.PodRunning, nil, running("a", true, 0))}, nil}},
		}}
		time.Sleep(3 * time.Second)
		results := Wait(t.Context(), s, []*v1.Pod{done, slow}, Options{Until: UntilCompleted, Timeout: time.Second, Start: begin})
		if got, want := results[0].Outcome, Succeeded; got != want {
			t.Errorf("outcome %q, want %q", got, want)
		}
		if r := results[1]; r.Outcome != TimedOut || r.Reason != "PodNotCompleted" {
			t.Errorf("%s, %s", r.Outcome, r.Reason)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("interrupted"))
		if r := Wait(ctx, s, []*v1.Pod{done}, Options{Until: UntilCompleted, Start: begin})[0]; r.Outcome != Canceled {
			t.Errorf("%s after a signal", r.Outcome)
		}
	})
}
