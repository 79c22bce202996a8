package admit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// TestNoteDependencies: the plan says which admitted pods will not start, with the first cause.
func TestNoteDependencies(t *testing.T) {
	t.Parallel()
	name := func(s string) types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: s} }
	decision := func(pod string, v Verdict, on ...string) Decision {
		d := Decision{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod}}, Verdict: v}
		if v != Admitted {
			d.Reason, d.Message = "Why", "too big"
		}
		for _, other := range on {
			d.DependsOn = append(d.DependsOn, podspec.Dependency{Namespace: "default", Name: other, Condition: podspec.UntilReady, Pods: []types.NamespacedName{name(other)}})
		}
		return d
	}
	earlier := func(d Decision, st v1.PodStatus) Decision {
		d.Running, d.Earlier = true, &v1.Pod{Status: st}
		return d
	}
	up := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}
	plan := Plan{Decisions: []Decision{
		decision("test", Admitted, "web"), decision("web", Admitted, "fine", "db"), decision("db", Rejected), decision("fine", Admitted),
		decision("lost", Admitted, "invalid"), decision("old", Preempted), decision("after", Admitted, "old"),
		earlier(decision("runs", Admitted, "db"), up), decision("beside", Admitted, "runs"),
		earlier(decision("rebooted", Admitted, "db"), v1.PodStatus{Phase: v1.PodPending}), decision("big", Rejected, "db"),
		decision("x", Admitted, "y"), decision("y", Admitted, "x"),
	}}
	plan.noteDependencies()
	got := map[string]string{}
	for _, d := range plan.Decisions {
		if d.Blocked() {
			got[d.Pod.Name] = d.Message
		}
	}
	want := map[string]string{
		"test": `pod "db" is rejected: too big`, "web": `pod "db" is rejected: too big`, "lost": `pod "invalid" is invalid`,
		"after": `pod "old" is preempted`, "rebooted": `pod "db" is rejected: too big`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDecideKeepsDependencies: a decision has what its pod depends on, and room for it.
func TestDecideKeepsDependencies(t *testing.T) {
	t.Parallel()
	web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
	on := []podspec.Dependency{{Namespace: "default", Name: "db", Condition: podspec.UntilReady, Pods: []types.NamespacedName{{Namespace: "default", Name: "db"}}}}
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("5")}}}
	plan := Decide(node, nil, []*v1.Pod{web}, Options{DependsOn: map[types.NamespacedName][]podspec.Dependency{podspec.NameOf(web): on}})
	if d := plan.Decisions[0]; cmp.Diff(on, d.DependsOn) != "" || !d.Blocked() {
		t.Errorf("decision %+v", d)
	}
}
