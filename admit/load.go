package admit

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/admit/quantity"
)

// demand is how much a pod asks of one resource, which is named by its index in ledger.
type demand struct {
	resource int
	amount   int64
}

// ledger counts what is used of each resource of the node.
type ledger struct {
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

// newLedger returns an empty ledger of the node's resources and of those that the given
// requests name.
func newLedger(node *v1.Node, requests []v1.ResourceList) *ledger {
	first := []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	l := &ledger{index: map[v1.ResourceName]int{}}
	for _, list := range append(requests, node.Status.Allocatable) {
		for name := range list {
			if _, ok := l.index[name]; !ok && !slices.Contains(first, name) {
				l.index[name] = 0
				l.names = append(l.names, name)
			}
		}
	}
	slices.Sort(l.names)
	l.names = slices.Concat(first, l.names)
	l.capacity = make([]int64, len(l.names))
	l.used = make([]int64, len(l.names))
	for i, name := range l.names {
		l.index[name] = i
		// A pod whose request does not fit in an int64 counts as its largest, and must
		// not fit anywhere.
		l.capacity[i] = min(quantity.Amount(name, node.Status.Allocatable[name]), math.MaxInt64-1)
	}
	return l
}

// demands returns the requests in the ledger's order, one pod first.
func (l *ledger) demands(requests v1.ResourceList) []demand {
	demands := make([]demand, 1, len(requests)+1)
	demands[0] = demand{podsIndex, 1}
	for name, q := range requests {
		if n := quantity.Amount(name, q); n > 0 && name != v1.ResourcePods {
			demands = append(demands, demand{l.index[name], n})
		}
	}
	slices.SortFunc(demands, func(a, b demand) int { return a.resource - b.resource })
	return demands
}

// take counts the demands as used.
func (l *ledger) take(demands []demand) {
	for _, d := range demands {
		l.used[d.resource] = quantity.Add(l.used[d.resource], d.amount)
	}
}

// recount forgets all use and counts that of the given pods. What was cut off at the
// largest number cannot be subtracted again.
func (l *ledger) recount(holding []*entry) {
	clear(l.used)
	for _, e := range holding {
		l.take(e.demands)
	}
}

// shortage returns the demands that do not fit, as what is missing of each.
func (l *ledger) shortage(demands []demand) []demand {
	var short []demand
	for _, d := range demands {
		free := l.capacity[d.resource] - l.used[d.resource] // used is never negative
		if d.amount > free {
			short = append(short, demand{d.resource, missing(d.amount, free)})
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

// list returns the amounts, one of each resource, as quantities.
func (l *ledger) list(amounts []int64) v1.ResourceList {
	list := v1.ResourceList{}
	for i, name := range l.names {
		switch name {
		case v1.ResourceCPU:
			list[name] = *resource.NewMilliQuantity(amounts[i], resource.DecimalSI)
		case v1.ResourceMemory, v1.ResourceEphemeralStorage:
			list[name] = *resource.NewQuantity(amounts[i], resource.BinarySI)
		default:
			list[name] = *resource.NewQuantity(amounts[i], resource.DecimalSI)
		}
	}
	return list
}

// Remaining returns what is left of each of the node's allocatable resources when the
// plan is carried out, never less than nothing.
func Remaining(plan Plan) v1.ResourceList {
	remaining := v1.ResourceList{}
	for name, q := range plan.Node.Status.Allocatable {
		remaining[name] = quantity.Less(q, plan.Used[name])
	}
	return remaining
}
