package runonce

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/admit"
)

// preventOvercommit blocks pods that count on the resources of pods that could not be
// stopped, the lowest priority first, until the rest fits the node.
func preventOvercommit(plan admit.Plan, removals []*removal, blocked map[int]error) {
	failed := slices.IndexFunc(removals, func(d *removal) bool { return d.err != nil })
	if failed < 0 || plan.Node == nil {
		return
	}
	free := v1.ResourceList{}
	for name, q := range plan.Node.Status.Allocatable {
		q = q.DeepCopy()
		q.Sub(plan.Used[name])
		free[name] = q
	}
	for _, d := range removals {
		if d.err != nil {
			addRequests(free, d.Pod, (*resource.Quantity).Sub)
		}
	}
	for i := range blocked {
		if d := plan.Decisions[i]; !d.Running {
			addRequests(free, d.Pod, (*resource.Quantity).Add)
		}
	}
	for _, i := range lastToStart(plan.Decisions, blocked) {
		if !overcommitted(free) {
			return
		}
		blocked[i] = fmt.Errorf("its resources are still in use: %w", removals[failed].err)
		addRequests(free, plan.Decisions[i].Pod, (*resource.Quantity).Add)
	}
}

// addRequests adds the pod's requests to the list, or subtracts them, with the given operation.
func addRequests(list v1.ResourceList, pod *v1.Pod, operation func(*resource.Quantity, resource.Quantity)) {
	requests := admit.Requests(pod)
	requests[v1.ResourcePods] = resource.MustParse("1")
	for name, q := range list {
		operation(&q, requests[name])
		list[name] = q
	}
}

func overcommitted(free v1.ResourceList) bool {
	for _, q := range free {
		if q.Sign() < 0 {
			return true
		}
	}
	return false
}

// lastToStart returns the rows of the pods to be started, the last one first.
func lastToStart(ds []admit.Decision, blocked map[int]error) []int {
	var rows []int
	for i, d := range ds {
		if d.Verdict == admit.Admitted && !d.Running && !d.Prune && blocked[i] == nil {
			rows = append(rows, i)
		}
	}
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(admit.Priority(ds[b].Pod), admit.Priority(ds[a].Pod)) })
	slices.Reverse(rows)
	return rows
}
