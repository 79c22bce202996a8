package runonce

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

func TestJobBackOff(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{
		1: 10 * time.Second, 2: 20 * time.Second, 6: 320 * time.Second, 7: 10 * time.Minute, 1 << 30: 10 * time.Minute,
	} {
		if got := jobBackOff(failures); got != want {
			t.Errorf("after %d failures %s, want %s", failures, got, want)
		}
	}
}

func TestJobOf(t *testing.T) {
	t.Parallel()
	js := jobs{}
	pod := func(namespace, text string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Annotations: map[string]string{podspec.AnnotationJob: text}}}
	}
	a := js.of(pod("x", `{"name": "j", "backoffLimit": 3}`))
	if a == nil || a.limit() != 3 || js.of(pod("x", `{"name": "j"}`)) != a {
		t.Errorf("pods of one Job: %+v", a)
	}
	if b := js.of(pod("y", `{"name": "j"}`)); b == nil || b == a {
		t.Errorf("a Job of the same name in another namespace: %p %p", a, b)
	}
	for _, text := range []string{"", "{", "6"} {
		if j := js.of(pod("x", text)); j != nil {
			t.Errorf("%q is a Job", text)
		}
	}
}

func TestMatchFailurePolicy(t *testing.T) {
	t.Parallel()
	name := "b"
	policy := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: "FailIndex", OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: "Moved", Status: "True"}}},
		{Action: "FailJob", OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{ContainerName: &name, Operator: "In", Values: []int32{1, 2}}},
		{Action: "Ignore", OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: "NotIn", Values: []int32{1, 2}}},
	}}
	exit := func(name string, code int32) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}}
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	for _, tt := range []struct {
		name, action, message string
		st                    v1.PodStatus
	}{
		{
			name: "code", action: "FailJob", message: "Container b for pod ns/p failed with exit code 2 matching FailJob rule at index 1",
			st: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{exit("a", 0), exit("b", 2)}},
		},
		{
			name: "init container", action: "FailJob", message: "Container b for pod ns/p failed with exit code 1 matching FailJob rule at index 1",
			st: v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{exit("b", 1)}},
		},
		{name: "code of another container", action: "Count", st: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{exit("a", 1), exit("b", 0)}}},
		{
			name: "another code", action: "Ignore", message: "Container a for pod ns/p failed with exit code 9 matching Ignore rule at index 2",
			st: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{exit("a", 9)}},
		},
		{
			name: "condition", action: "FailIndex", message: "Pod ns/p has condition Moved matching FailIndex rule at index 0",
			st: v1.PodStatus{Conditions: []v1.PodCondition{{Type: "Moved", Status: "True"}}},
		},
		{name: "nothing", action: "Count"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			action, message := matchFailurePolicy(policy, pod, tt.st)
			if string(action) != tt.action || message != tt.message {
				t.Errorf("%s %q, want %s %q", action, message, tt.action, tt.message)
			}
		})
	}
}

// TestJobResume: pods of earlier runs are active even if there are too many of them, and the next
// one when there are not.
func TestJobResume(t *testing.T) {
	t.Parallel()
	j := jobs{}.of(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{podspec.AnnotationJob: `{"name": "j", "parallelism": 1}`}}})
	a, b, woken := j.resume("a", 0), j.resume("b", 0), 0
	next := j.active.reserve(0, func() { woken++ })
	for _, c := range []struct {
		uid   types.UID
		turn  *waiter
		holds bool
		woken int
	}{{"a", a, false, 0}, {"b", b, true, 1}} {
		if !c.turn.holds() {
			t.Errorf("%s is not active", c.uid)
		}
		if j.leave(c.uid, c.turn, true); next.holds() != c.holds || woken != c.woken {
			t.Errorf("after %s: the next one is active: %v, and was woken %d times", c.uid, next.holds(), woken)
		}
	}
}
