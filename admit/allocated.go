package admit

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// request is how much a pod asks for of one resource, given by its index in allocated.
type request struct {
	resource int
	amount   int64
}

// allocated is how much is requested of each resource of the node.
type allocated struct {
	names    []v1.ResourceName // pods, cpu, memory, ephemeral-storage, then by name
	index    map[v1.ResourceName]int
	capacity []int64
	used     []int64
}

// The resources that the kubelet looks at first, in its order.
const (
	podsIndex = iota
	cpuIndex
	memoryIndex
	storageIndex
)

// newAllocated knows the node's resources and those that the given requests name, of which
// nothing is used yet.
func newAllocated(node *v1.Node, requests []v1.ResourceList) *allocated {
	first := []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	a := &allocated{index: map[v1.ResourceName]int{}}
	for _, list := range append(requests, node.Status.Allocatable) {
		for name := range list {
			if _, ok := a.index[name]; !ok && !slices.Contains(first, name) {
				a.index[name] = 0
				a.names = append(a.names, name)
			}
		}
	}
	slices.Sort(a.names)
	a.names = slices.Concat(first, a.names)
	a.capacity = make([]int64, len(a.names))
	a.used = make([]int64, len(a.names))
	for i, name := range a.names {
		a.index[name] = i
		// A request beyond an int64 counts as the largest one, and must not fit anywhere.
		a.capacity[i] = min(amount(name, node.Status.Allocatable[name]), math.MaxInt64-1)
	}
	return a
}

// requests returns a list's amounts of the known resources in their order, one pod first.
func (a *allocated) requests(list v1.ResourceList) []request {
	requests := make([]request, 1, len(list)+1)
	requests[0] = request{podsIndex, 1}
	for name, q := range list {
		if i, ok := a.index[name]; ok && name != v1.ResourcePods {
			if n := amount(name, q); n > 0 {
				requests = append(requests, request{i, n})
			}
		}
	}
	slices.SortFunc(requests, func(r, s request) int { return r.resource - s.resource })
	return requests
}

// add counts the requests.
func (a *allocated) add(requests []request) {
	for _, r := range requests {
		a.used[r.resource] = sum(a.used[r.resource], r.amount)
	}
}

// recount counts the requests of the given pods and nothing else. They are not subtracted,
// since a sum may have been cut off at the largest int64.
func (a *allocated) recount(holding []*entry) {
	clear(a.used)
	for _, e := range holding {
		a.add(e.requests)
	}
}

// insufficient returns the requests that do not fit, with the amounts that are missing.
func (a *allocated) insufficient(requests []request) []request {
	var short []request
	for _, r := range requests {
		free := a.capacity[r.resource] - a.used[r.resource] // used is never negative
		if r.amount > free {
			short = append(short, request{r.resource, missing(r.amount, free)})
		}
	}
	return short
}

// missing returns amount - free, at most the largest int64.
func missing(amount, free int64) int64 {
	if free < 0 && amount > math.MaxInt64+free {
		return math.MaxInt64
	}
	return amount - free
}

// list returns the amounts, one for each resource, as quantities.
func (a *allocated) list(amounts []int64) v1.ResourceList {
	list := v1.ResourceList{}
	for i, name := range a.names {
		list[name] = *a.quantity(i, amounts[i])
	}
	return list
}

// quantity returns an amount of a resource.
func (a *allocated) quantity(i int, amount int64) *resource.Quantity {
	switch a.names[i] {
	case v1.ResourceCPU:
		return resource.NewMilliQuantity(amount, resource.DecimalSI)
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return resource.NewQuantity(amount, resource.BinarySI)
	default:
		return resource.NewQuantity(amount, resource.DecimalSI)
	}
}

// Remaining returns how much of each of the node's allocatable resources is left once the
// plan is carried out, at least 0.
func Remaining(plan Plan) v1.ResourceList {
	remaining := v1.ResourceList{}
	for name, q := range plan.Node.Status.Allocatable {
		remaining[name] = subtract(q, plan.Used[name])
	}
	return remaining
}
