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
	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
)

// recording is a fake that keeps the events of its pods.
type recording struct {
	*fake

	mu     sync.Mutex
	events map[types.UID][]podevent.Event
}

func (r *recording) Record(pod *v1.Pod, e podevent.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events == nil {
		r.events = map[types.UID][]podevent.Event{}
	}
	r.events[pod.UID] = append(r.events[pod.UID], e)
}

func (r *recording) Events(_ context.Context, pod *v1.Pod) ([]podevent.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return podevent.Aggregate(r.events[pod.UID]), nil
}

// TestRecord: a run records what it decides about pods, in the words of the scheduler and of the kubelet.
func TestRecord(t *testing.T) {
	t.Parallel()
	never, always := v1.RestartPolicyNever, v1.RestartPolicyAlways
	pod := newPod("web", always)
	boss := newPod("boss", always)
	rejected := admit.Decision{Pod: pod, Verdict: admit.Rejected, Reason: "OutOfcpu", Message: "no cpu"}
	preempted := admit.Decision{Pod: pod, Verdict: admit.Preempted, Reason: "Preempting", Message: "Preempted in order to admit critical pod", By: boss}
	victim := preempted
	victim.Running = true
	for name, c := range map[string]struct {
		plan    admit.Plan
		scripts map[string]script
		want    string // of the pod web
	}{
		"admitted": {
			plan: admit.Plan{Node: nodeOf("1"), Decisions: []admit.Decision{{Pod: pod, Verdict: admit.Admitted}}},
			want: "Normal Scheduled: Successfully assigned default/web to node",
		},
		"started again after errors": {
			plan: admitted(pod), scripts: map[string]script{"web": {sync: func(n int) error {
				if n < 3 {
					return syncError{text: "not yet"}
				}
				return nil
			}, timeline: []moment{{0, running()}}}},
			want: "Normal Scheduled: Successfully assigned default/web",
		},
		"runs": {plan: admit.Plan{Decisions: []admit.Decision{{Pod: pod, Verdict: admit.Admitted, Running: true}}}},
		"rejected": {
			plan: admit.Plan{Decisions: []admit.Decision{rejected}}, want: "Warning OutOfcpu: no cpu",
		},
		"preempted by a pod of this plan": {
			plan: admit.Plan{Decisions: []admit.Decision{{Pod: boss, Verdict: admit.Admitted}, preempted}},
			want: "Warning Preempting: Preempted in order to admit critical pod default/boss",
		},
		"preempted while it runs": {
			plan: admit.Plan{Decisions: []admit.Decision{{Pod: boss, Verdict: admit.Admitted}, victim}},
			want: "Warning Preempting: Preempted in order to admit critical pod default/boss",
		},
		"queued": {
			plan:    queuePlan("1", nil, sized("first", never, "1"), sized("web", always, "1")),
			scripts: map[string]script{"first": succeeding(time.Minute)},
			want:    "Normal Queued: waits for cpu: needs 1, 0 of 1 are free; it is the next one, Normal Scheduled: Successfully assigned default/web to node",
		},
		"waits for another": {
			plan: admit.Plan{Decisions: []admit.Decision{
				{Pod: boss, Verdict: admit.Admitted}, {Pod: pod, Verdict: admit.Admitted, DependsOn: []podspec.Dependency{ready("boss")}},
			}},
			scripts: map[string]script{"boss": readyAfter(time.Minute)},
			want:    `Normal WaitingForDependency: waits for pod "boss" to be ready, Normal Scheduled: Successfully assigned default/web`,
		},
		"depends on a failed one": {
			plan: admit.Plan{Decisions: []admit.Decision{
				{Pod: newPod("boss", never), Verdict: admit.Admitted}, {Pod: pod, Verdict: admit.Admitted, DependsOn: []podspec.Dependency{ready("boss")}},
			}},
			scripts: map[string]script{"boss": {timeline: []moment{
				{0, with(v1.PodRunning, unready())}, {time.Second, with(v1.PodFailed, ended(3))},
			}}},
			want: `Normal WaitingForDependency: waits for pod "boss" to be ready, Warning DependencyFailed: pod "boss" failed: container "c" exited with code 3`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := &recording{fake: &fake{scripts: map[string]script{"web": runs(), "boss": runs(), "first": runs()}}}
				for name, s := range c.scripts {
					rt.scripts[name] = s
				}
				results := runonce.Run(t.Context(), rt, c.plan, runonce.Options{Until: runonce.UntilRunning, Retry: runonce.Backoff{Factor: 1, Retries: 5}, Events: true})
				var got []string
				for _, r := range results {
					if r.Pod.Name != "web" {
						continue
					}
					for _, e := range r.Events {
						message, _, _ := strings.Cut(e.Message, ": container")
						if e.Type == v1.EventTypeWarning {
							message = e.Message
						}
						got = append(got, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, message))
					}
				}
				if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestManyRefused: of many pods that do not start only some are recorded.
func TestManyRefused(t *testing.T) {
	t.Parallel()
	rt := &recording{fake: &fake{}}
	var plan admit.Plan
	for i := range 500 {
		plan.Decisions = append(plan.Decisions, admit.Decision{Pod: newPod(fmt.Sprint(i), v1.RestartPolicyAlways), Verdict: admit.Rejected, Reason: "OutOfcpu"})
	}
	runonce.Run(t.Context(), rt, plan, runonce.Options{})
	want(t, "pods with events", len(rt.events), 100)
}

// TestEventLines: people see the last warnings about a pod that is not at its goal, as far as they say more than its
// result.
func TestEventLines(t *testing.T) {
	t.Parallel()
	warning := func(reason, message string) podevent.Event {
		return podevent.New(v1.EventTypeWarning, reason, "c", message)
	}
	failed := script{timeline: []moment{{0, with(v1.PodFailed, ended(3))}}}
	for name, c := range map[string]struct {
		events []podevent.Event
		script script
		want   []string
	}{
		"at its goal": {[]podevent.Event{warning("FailedMount", "no such secret")}, runs(), nil},
		"told": {
			[]podevent.Event{
				podevent.New(v1.EventTypeNormal, "Pulled", "c", "there"), warning("BackOff", "Back-off restarting failed container c in pod p"),
				warning("Failed", "Error: ErrImagePull"), warning("Unhealthy", `Liveness probe failed: container "c" exited with code 3`), warning("OOMKilling", "killed"),
			}, failed, nil,
		},
		"more": {
			[]podevent.Event{warning("FailedMount", "no such secret"), warning("FailedMount", "no such secret"), warning("Unhealthy", "Liveness probe failed: 500")},
			failed,
			[]string{"Warning FailedMount: no such secret (2 times)", "Warning Unhealthy: Liveness probe failed: 500"},
		},
		"many": {
			[]podevent.Event{warning("A", "0"), warning("A", "1 x"), warning("A", "2 x"), warning("A", "4 x"), warning("A", "5 x"), warning("A", "6 x")},
			failed,
			[]string{"Warning A: 1 x", "Warning A: 2 x", "Warning A: 4 x", "Warning A: 5 x", "Warning A: 6 x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pod := newPod("web", v1.RestartPolicyNever)
				rt := &recording{fake: &fake{scripts: map[string]script{"web": c.script}}}
				for _, e := range c.events {
					rt.Record(pod, e)
				}
				got := runonce.Run(t.Context(), rt, admitted(pod), runonce.Options{Until: runonce.UntilRunning})
				if !slices.Equal(got[0].EventLines, c.want) {
					t.Errorf("%q, want %q", got[0].EventLines, c.want)
				}
				want(t, "events for programs", len(got[0].Events) > 0, c.script.timeline[0].status.Phase == v1.PodFailed)
			})
		})
	}
}
