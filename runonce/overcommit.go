package runonce

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/admit"
)

// preventOvercommit blocks pods that were to start in place of pods that could not be
// stopped, the least important first, until what is left fits the node: the plan counted
// on resources that are still in use.
func preventOvercommit(plan admit.Plan, halts []halt, blocked map[int]error) {
	failed := slices.IndexFunc(halts, func(h halt) bool { return h.err != nil })
	if failed < 0 || plan.Node == nil {
		return
	}
	left := v1.ResourceList{}
	for name, q := range plan.Node.Status.Allocatable {
		q = q.DeepCopy()
		q.Sub(plan.Used[name])
		left[name] = q
	}
	for _, h := range halts {
		if h.err != nil {
			change(left, h.Pod, (*resource.Quantity).Sub)
		}
	}
	for i := range blocked {
		change(left, plan.Decisions[i].Pod, (*resource.Quantity).Add)
	}
	for _, i := range unstarted(plan.Decisions, blocked) {
		if !overcommitted(left) {
			return
		}
		blocked[i] = fmt.Errorf("its room is not free: %w", halts[failed].err)
		change(left, plan.Decisions[i].Pod, (*resource.Quantity).Add)
	}
}

// change adds or subtracts what the pod asks for.
func change(left v1.ResourceList, pod *v1.Pod, by func(*resource.Quantity, resource.Quantity)) {
	asked := admit.Requests(pod)
	asked[v1.ResourcePods] = resource.MustParse("1")
	for name, q := range left {
		by(&q, asked[name])
		left[name] = q
	}
}

func overcommitted(left v1.ResourceList) bool {
	for _, q := range left {
		if q.Sign() < 0 {
			return true
		}
	}
	return false
}

// unstarted returns the indexes of pods that have not started yet, the last to be started
// first.
func unstarted(ds []admit.Decision, blocked map[int]error) []int {
	var rows []int
	for i, d := range ds {
		if d.Verdict == admit.Admitted && !d.Running && !d.Prune && blocked[i] == nil {
			rows = append(rows, i)
		}
	}
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(priority(ds[b].Pod), priority(ds[a].Pod)) })
	slices.Reverse(rows)
	return rows
}
