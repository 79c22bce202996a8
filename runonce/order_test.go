package runonce_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

// onPods is a dependency on pods of the namespace default, with the name of the first one.
func onPods(c podspec.Until, names ...string) podspec.Dependency {
	d := podspec.Dependency{Namespace: "default", Name: strings.Join(names, "+"), Condition: c}
	for _, name := range names {
		d.Pods = append(d.Pods, types.NamespacedName{Namespace: "default", Name: name})
	}
	return d
}

func ready(names ...string) podspec.Dependency { return onPods(podspec.UntilReady, names...) }

// readyAfter is a pod that runs at once and is ready after a while.
func readyAfter(d time.Duration) script {
	return script{timeline: []moment{{0, with(v1.PodRunning, unready())}, {d, running()}}}
}

func endsAfter(d time.Duration, code int32) script {
	phase := v1.PodSucceeded
	if code != 0 {
		phase = v1.PodFailed
	}
	return script{timeline: []moment{{0, running()}, {d, with(phase, ended(code))}}}
}

// ordered is a pod of a test with what it depends on.
type ordered struct {
	name    string
	policy  v1.RestartPolicy
	on      []podspec.Dependency
	script  script
	verdict admit.Verdict
	before  *v1.PodStatus // of an earlier run
	labels  map[string]string
}

func planOf(pods []ordered) (admit.Plan, *fake) {
	rt := &fake{scripts: map[string]script{}}
	var plan admit.Plan
	for _, o := range pods {
		pod := newPod(o.name, o.policy)
		pod.Annotations = o.labels
		d := admit.Decision{Pod: pod, Verdict: admit.Admitted, DependsOn: o.on}
		if o.verdict != "" {
			d.Verdict, d.Reason, d.Message = o.verdict, "OutOfcpu", "too little"
		}
		if o.before != nil {
			d.Running, d.Earlier = true, pod.DeepCopy()
			d.Earlier.Status = *o.before
			o.script.before = o.before
		}
		plan.Decisions = append(plan.Decisions, d)
		rt.scripts[o.name] = o.script
	}
	return plan, rt
}

// TestDependencies: what starts when, and what becomes of pods that depend on others.
func TestDependencies(t *testing.T) {
	t.Parallel()
	optional := map[string]string{podspec.AnnotationOptional: "true"}
	never := v1.RestartPolicyNever
	alive, gone := running(), with(v1.PodPending, waiting("ContainerCreating"))
	for _, c := range []struct {
		name    string
		pods    []ordered
		options runonce.Options
		starts  string // "name@seconds", in the order of the input; those that start
		results string
		message string // of the last pod
		code    int
	}{
		{
			name:   "ready by default, and nothing else waits",
			pods:   []ordered{{name: "db", script: readyAfter(5 * time.Second)}, {name: "other", script: runs()}, {name: "web", on: []podspec.Dependency{ready("db")}, script: runs()}},
			starts: "db@0 other@0 web@5", results: "db=Ready other=Running web=Running",
		},
		{
			name: "running, ready and completed of one pod",
			pods: []ordered{
				{name: "job", policy: never, script: script{timeline: []moment{{0, with(v1.PodPending)}, {time.Second, with(v1.PodRunning, unready())}, {2 * time.Second, running()}, {9 * time.Second, with(v1.PodSucceeded, ended(0))}}}},
				{name: "a", on: []podspec.Dependency{onPods(podspec.UntilRunning, "job")}, script: runs()},
				{name: "b", on: []podspec.Dependency{ready("job")}, script: runs()},
				{name: "c", on: []podspec.Dependency{onPods(podspec.UntilCompleted, "job")}, script: runs()},
			},
			starts: "job@0 a@1 b@2 c@9", results: "job=Succeeded a=Running b=Running c=Running",
		},
		{
			name: "running for others means as long as for the run",
			pods: []ordered{
				{name: "db", script: readyAfter(30 * time.Second)},
				{name: "web", on: []podspec.Dependency{onPods(podspec.UntilRunning, "db"), ready("db")}, script: runs()},
				{name: "early", on: []podspec.Dependency{onPods(podspec.UntilRunning, "db")}, script: runs()},
			},
			options: runonce.Options{Settle: 3 * time.Second},
			starts:  "db@0 web@30 early@3", results: "db=Ready web=Running early=Running",
		},
		{
			name: "all pods of a group, and a chain",
			pods: []ordered{
				{name: "test", on: []podspec.Dependency{ready("web")}, script: runs()},
				{name: "web", on: []podspec.Dependency{ready("db-0", "db-1")}, script: readyAfter(time.Second)},
				{name: "db-0", script: readyAfter(2 * time.Second)},
				{name: "db-1", script: readyAfter(4 * time.Second)},
			},
			starts: "test@5 web@4 db-0@0 db-1@0", results: "test=Running web=Ready db-0=Ready db-1=Ready",
		},
		{
			name: "a failure takes the chain along, and names the first cause",
			pods: []ordered{
				{name: "db", policy: never, script: endsAfter(3*time.Second, 7)},
				{name: "other", script: runs()},
				{name: "migrate", on: []podspec.Dependency{onPods(podspec.UntilCompleted, "db")}},
				{name: "web", on: []podspec.Dependency{ready("migrate"), ready("other")}},
			},
			starts: "db@0 other@0", results: "db=Failed other=Ready migrate=Canceled,DependencyFailed web=Canceled,DependencyFailed", code: 1,
			message: `pod "db" failed: container "c" exited with code 7`,
		},
		{
			name:   "what runs is left alone when that fails on which it depends",
			pods:   []ordered{{name: "db", policy: never, script: endsAfter(3*time.Second, 7)}, {name: "web", on: []podspec.Dependency{ready("db")}, script: readyAfter(9 * time.Second)}},
			starts: "db@0 web@0", results: "db=Failed web=Ready", code: 1, options: runonce.Options{Until: runonce.UntilReady},
		},
		{
			name:   "rejected",
			pods:   []ordered{{name: "db", verdict: admit.Rejected}, {name: "web", on: []podspec.Dependency{ready("db")}}, {name: "test", on: []podspec.Dependency{ready("web")}}},
			starts: "", results: "db=Rejected,OutOfcpu web=Canceled,DependencyFailed test=Canceled,DependencyFailed", code: 3,
			message: `pod "db" was rejected: too little`,
		},
		{
			name:   "invalid",
			pods:   []ordered{{name: "web", on: []podspec.Dependency{ready("db")}}},
			starts: "", results: "web=Canceled,DependencyFailed", code: 1, message: `pod "db" is invalid`,
		},
		{
			name:   "given up",
			pods:   []ordered{{name: "db", script: script{sync: always(errBadName)}}, {name: "web", on: []podspec.Dependency{ready("db")}}},
			starts: "db@0", results: "db=Failed,InvalidImageName web=Canceled,DependencyFailed", code: 1, message: `pod "db" failed: invalid reference`,
		},
		{
			name: "restarts are no failure",
			pods: []ordered{
				{name: "db", script: script{timeline: []moment{{0, with(v1.PodRunning, crashed(0))}, {10 * time.Second, with(v1.PodRunning, restarted(up(), 1))}}}},
				{name: "web", on: []podspec.Dependency{ready("db")}, script: runs()},
			},
			starts: "db@0 web@10", results: "db=Ready web=Running",
		},
		{
			name:   "optional counts for nothing itself",
			pods:   []ordered{{name: "cache", policy: never, script: endsAfter(0, 1), labels: optional}, {name: "web", script: runs()}},
			starts: "cache@0 web@0", results: "cache=Failed web=Running",
		},
		{
			name:   "but what depends on it has not started",
			pods:   []ordered{{name: "cache", policy: never, script: endsAfter(0, 1), labels: optional}, {name: "web", on: []podspec.Dependency{onPods(podspec.UntilCompleted, "cache")}}},
			starts: "cache@0", results: "cache=Failed web=Canceled,DependencyFailed", code: 1, message: `pod "cache" failed: container "c" exited with code 1`,
		},
		{
			name:    "optional does not end a run with --fail-fast",
			pods:    []ordered{{name: "cache", policy: never, script: endsAfter(0, 1), labels: optional}, {name: "web", script: readyAfter(time.Second)}},
			options: runonce.Options{FailFast: true, Until: runonce.UntilReady},
			starts:  "cache@0 web@0", results: "cache=Failed web=Ready",
		},
		{
			name:    "what depends on it does",
			pods:    []ordered{{name: "slow", script: readyAfter(time.Minute)}, {name: "cache", policy: never, script: endsAfter(time.Second, 1), labels: optional}, {name: "web", on: []podspec.Dependency{onPods(podspec.UntilCompleted, "cache")}}},
			options: runonce.Options{FailFast: true, Until: runonce.UntilReady},
			starts:  "slow@0 cache@0", results: "slow=Canceled,FailFast cache=Failed web=Canceled,DependencyFailed", code: 1, message: `pod "cache" failed: container "c" exited with code 1`,
		},
		{
			name:    "the time is over",
			pods:    []ordered{{name: "init", script: readyAfter(time.Hour)}, {name: "db", on: []podspec.Dependency{ready("init")}}, {name: "web", on: []podspec.Dependency{ready("db")}}},
			options: runonce.Options{Timeout: time.Minute},
			starts:  "init@0", results: "init=TimedOut,ContainersNotReady db=TimedOut,NotStarted web=TimedOut,NotStarted", code: 1,
			message: `the run ended before the pod was started: waits for pod "db" to be ready: waits for pod "init" to be ready`,
		},
		{
			name:    "why others are not there yet",
			pods:    []ordered{{name: "db-0", script: readyAfter(0)}, {name: "db-1", script: readyAfter(time.Hour)}, {name: "web", on: []podspec.Dependency{ready("db-0", "db-1")}}},
			options: runonce.Options{Timeout: time.Minute},
			starts:  "db-0@0 db-1@0", results: "db-0=Ready db-1=TimedOut,ContainersNotReady web=TimedOut,NotStarted", code: 1,
			message: `the run ended before the pod was started: waits for all 2 pods of "db-0+db-1" to be ready: pod "db-1": container "c" is running but not ready`,
		},
		{
			name:   "no slot is held meanwhile",
			pods:   []ordered{{name: "web", on: []podspec.Dependency{ready("db")}, script: runs()}, {name: "db", script: runs()}},
			starts: "web@0 db@0", results: "web=Running db=Ready", options: runonce.Options{Parallel: 1},
		},
		{
			name:   "what runs from an earlier run is left alone",
			pods:   []ordered{{name: "db", script: readyAfter(5 * time.Second)}, {name: "web", on: []podspec.Dependency{ready("db")}, before: &alive, script: runs()}},
			starts: "db@0 web@0", results: "db=Ready web=Running", message: "from an earlier run",
		},
		{
			name:   "what was started in an earlier run and does not run starts in order",
			pods:   []ordered{{name: "db", before: &gone, script: readyAfter(5 * time.Second)}, {name: "web", on: []podspec.Dependency{ready("db")}, before: &gone, script: runs()}},
			starts: "db@0 web@5", results: "db=Ready web=Running",
		},
		{
			name:   "the run waits for what others wait for, even if they run",
			pods:   []ordered{{name: "job", policy: never, script: endsAfter(time.Minute, 0)}, {name: "web", on: []podspec.Dependency{onPods(podspec.UntilCompleted, "job")}, before: &alive, script: runs()}},
			starts: "job@0 web@0", results: "job=Succeeded web=Running", message: "from an earlier run",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				plan, rt := planOf(c.pods)
				begin := time.Now()
				results := runonce.Run(t.Context(), rt, plan, c.options)
				first := map[string]time.Duration{}
				for at, names := range rt.began {
					for _, name := range names {
						if d, ok := first[name]; !ok || at.Sub(begin) < d {
							first[name] = at.Sub(begin)
						}
					}
				}
				var starts, outcomes []string
				for _, r := range results {
					if at, ok := first[r.Pod.Name]; ok {
						starts = append(starts, fmt.Sprintf("%s@%d", r.Pod.Name, at/time.Second))
					}
					text := r.Pod.Name + "=" + string(r.Outcome)
					if r.Reason != "" && r.Reason != "Error" {
						text += "," + r.Reason
					}
					outcomes = append(outcomes, text)
				}
				if diff := cmp.Diff(strings.Fields(c.starts), starts); diff != "" && len(starts)+len(c.starts) > 0 {
					t.Error(diff)
				}
				if diff := cmp.Diff(strings.Fields(c.results), outcomes); diff != "" {
					t.Error(diff)
				}
				want(t, "exit code", report.ExitCode(results, 0), c.code)
				want(t, "message", results[len(results)-1].Message, c.message)
			})
		})
	}
}

// ahead is a fake that pulls ahead.
type ahead struct {
	*fake
	mu    sync.Mutex
	pulls []string
}

func (r *ahead) PullAhead(ctx context.Context, pod *v1.Pod) {
	r.mu.Lock()
	r.pulls = append(r.pulls, pod.Name)
	r.mu.Unlock()
	<-ctx.Done() // at the latest when the pod starts or ends
}

// TestPullAhead: the images of pods that wait for others are pulled meanwhile, and the wait is a phase.
func TestPullAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan, rt := planOf([]ordered{
			{name: "db", script: readyAfter(5 * time.Second)},
			{name: "web", on: []podspec.Dependency{ready("db")}, script: runs()},
			{name: "bad", policy: v1.RestartPolicyNever, script: endsAfter(time.Second, 1)},
			{name: "lost", on: []podspec.Dependency{onPods(podspec.UntilCompleted, "bad")}},
		})
		pulling := &ahead{fake: rt}
		results := runonce.Run(t.Context(), pulling, plan, runonce.Options{Trace: &runonce.Trace{}})
		slices.Sort(pulling.pulls)
		if diff := cmp.Diff([]string{"lost", "web"}, pulling.pulls); diff != "" {
			t.Error(diff)
		}
		for i, waited := range map[int]time.Duration{1: 5 * time.Second, 3: time.Second} {
			if diff := cmp.Diff([]runonce.Phase{{Name: runonce.PhaseWaiting, Elapsed: waited}}, results[i].Phases); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// TestKeptOrder: when a run keeps its pods, what was canceled starts once the pod has recovered on which it
// depends, and nothing is restarted because that is.
func TestKeptOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		plan, rt := planOf([]ordered{
			{name: "db", script: script{sync: failFirst(1, errBadName), timeline: []moment{
				{0, running()}, {time.Hour, with(v1.PodRunning, crashed(0))}, {time.Hour + time.Second, with(v1.PodRunning, restarted(up(), 1))},
			}}},
			{name: "web", on: []podspec.Dependency{ready("db")}, script: runs()},
			{name: "test", on: []podspec.Dependency{ready("web")}, script: runs()},
		})
		over := make(chan struct{})
		time.AfterFunc(3*time.Hour, func() { close(over) })
		var known []runonce.Result
		last := runonce.Run(t.Context(), rt, plan, runonce.Options{Keep: over, Concluded: func(results []runonce.Result) { known = slices.Clone(results) }})
		for i, outcome := range []runonce.Outcome{runonce.Failed, runonce.Canceled, runonce.Canceled} {
			want(t, "first outcome", known[i].Outcome, outcome)
		}
		want(t, "first message", known[2].Message, `pod "db" failed: invalid reference`)
		for i, outcome := range []runonce.Outcome{runonce.Ready, runonce.Ready, runonce.Running} {
			want(t, "last outcome of "+last[i].Pod.Name, last[i].Outcome, outcome)
		}
		want(t, "syncs of web", count(rt.calls, "sync web"), 1)
		want(t, "syncs of test", count(rt.calls, "sync test"), 1)
		for at, names := range rt.began {
			if slices.Contains(names, "test") {
				want(t, "start of test", at.Sub(begin), 5*time.Minute)
			}
		}
	})
}

// TestRemovedInOrder: a run removes and replaces pods that depend on others before these, and the others at once.
func TestRemovedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan, rt := planOf([]ordered{
			{name: "db", script: script{timeline: runs().timeline, stopTakes: time.Second}},
			{name: "other", script: script{timeline: runs().timeline, stopTakes: time.Minute}},
			{name: "web", on: []podspec.Dependency{ready("db")}, script: script{timeline: runs().timeline, stopTakes: 2 * time.Second}, labels: map[string]string{podspec.AnnotationDependsOn: "db"}},
		})
		for i := range plan.Decisions {
			d := &plan.Decisions[i]
			old := d.Pod.DeepCopy()
			old.UID += "-old"
			d.Replaces = []*v1.Pod{old}
		}
		runonce.Run(t.Context(), rt, plan, runonce.Options{Remove: runonce.RemoveAll})
		stops := slices.DeleteFunc(rt.calls, func(call string) bool { return strings.HasPrefix(call, "sync") || strings.HasSuffix(call, "other") })
		once := []string{"stop web", "stopped web", "stop db", "stopped db"}
		if diff := cmp.Diff(slices.Concat(once, once), stops); diff != "" {
			t.Error(diff)
		}
	})
}
