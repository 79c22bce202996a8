package runonce

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
)

func sized(name string, prio int32, memory string) *v1.Pod {
	pod := &v1.Pod{}
	pod.Name, pod.UID, pod.Spec.Priority = name, types.UID(name), &prio
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)},
	}}}
	return pod
}

// TestPreventOvercommit: pods that could not be stopped still use their resources, and the pods of
// the lowest priority have to wait.
func TestPreventOvercommit(t *testing.T) {
	t.Parallel()
	stuck := errors.New("stuck")
	victim, critical := sized("victim", 0, "600Mi"), sized("critical", 2e9, "200Mi")
	kept, high, low := sized("kept", 0, "400Mi"), sized("high", 10, "300Mi"), sized("low", 5, "100Mi")
	ds := []admit.Decision{
		{Pod: critical, Verdict: admit.Admitted},
		{Pod: kept, Verdict: admit.Admitted, Running: true},
		{Pod: low, Verdict: admit.Admitted},
		{Pod: high, Verdict: admit.Admitted},
		{Pod: victim, Verdict: admit.Preempted, Running: true, By: critical},
	}
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		v1.ResourceMemory: resource.MustParse("1000Mi"), v1.ResourcePods: resource.MustParse("110"),
	}}}
	plan := admit.Plan{Node: node, Decisions: ds, Used: v1.ResourceList{
		v1.ResourceMemory: resource.MustParse("1000Mi"), v1.ResourcePods: resource.MustParse("4"),
	}}
	tests := []struct {
		name     string
		removals []*removal
		blocked  map[int]error
		want     []int
	}{
		{name: "all stopped", removals: []*removal{{Removal: admit.Removal{Pod: victim, Row: 4}}}, want: nil},
		// 400 of the critical pod and the others do not fit beside the victim's 600.
		{name: "not stopped", removals: []*removal{{Removal: admit.Removal{Pod: victim, Row: 4}, err: stuck}}, blocked: map[int]error{0: stuck}, want: []int{0, 2, 3}},
		// A small one that stays leaves enough for the more important pod.
		{name: "a small one", removals: []*removal{{Removal: admit.Removal{Pod: sized("small", 0, "250Mi"), Row: 4}, err: stuck}}, blocked: map[int]error{0: stuck}, want: []int{0, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			blocked := maps.Clone(tt.blocked)
			preventOvercommit(plan, tt.removals, blocked)
			got := slices.Sorted(maps.Keys(blocked))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("blocked rows (-want +got):\n%s", diff)
			}
		})
	}
}
