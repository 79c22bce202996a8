// Package preempt finds the smallest set of pods whose end frees what a critical pod lacks.
//
// Smallest is meant in this order: the lowest possible highest priority among the
// victims; the fewest Guaranteed, then Burstable, then BestEffort victims; the least
// memory, then the least cpu requested by them; those that come latest in order.
package preempt

import (
	"cmp"
	"math"
	"slices"
)

// Class is a pod's class of service; a higher one is worth more.
type Class int

// The classes.
const (
	BestEffort Class = iota
	Burstable
	Guaranteed
)

// Pod is one that may be preempted. Its numbers are not negative.
type Pod struct {
	Priority int32
	Class    Class
	Frees    []int64 // of each need, in the order of Problem.Need
	Memory   int64   // requested, in bytes
	CPU      int64   // requested, in thousandths
	Forced   bool    // has to go whatever else it frees
}

// Problem is what is missing, and the pods that may go, in order.
type Problem struct {
	Need   []int64
	Pods   []Pod
	Budget int // nodes of the search tree; 0 for DefaultBudget
}

// DefaultBudget is the number of nodes searched when nothing else is asked for.
const DefaultBudget = 1_500_000

// Answer is a set of victims.
type Answer struct {
	Victims []int // indices of Problem.Pods, ascending
	Optimal bool  // proven to be the smallest set
	Nodes   int   // nodes of the search tree that were looked at
}

// Solve returns the smallest set of victims, or the best one found within the budget.
// It is never worse than the kubelet's choice. It returns false when all pods together
// do not free enough.
func Solve(p Problem) (Answer, bool) {
	limit, ok := p.priorityLimit()
	if !ok {
		return Answer{}, false
	}
	var forced []int
	need := slices.Clone(p.Need)
	for i, pod := range p.Pods {
		if pod.Forced {
			forced = append(forced, i)
			reduce(need, pod.Frees)
		}
	}
	r := p.reduced(need, limit)
	answer := r.solve(p.Budget)
	answer.Victims = append(answer.Victims, forced...)
	slices.Sort(answer.Victims)
	return answer, true
}

// priorityLimit returns the lowest priority that the highest victim must have: the pods
// up to it free enough. It returns false when all pods do not.
func (p Problem) priorityLimit() (int32, bool) {
	need := slices.Clone(p.Need)
	limit := int32(math.MinInt32)
	order := make([]int, 0, len(p.Pods))
	for i, pod := range p.Pods {
		if pod.Forced {
			reduce(need, pod.Frees)
			limit = max(limit, pod.Priority)
			continue
		}
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Pods[a].Priority, p.Pods[b].Priority) })
	for _, i := range order {
		if met(need) {
			break
		}
		reduce(need, p.Pods[i].Frees)
		limit = max(limit, p.Pods[i].Priority)
	}
	return limit, met(need)
}

// reduce subtracts what is freed from what is needed, down to nothing.
func reduce(need, frees []int64) {
	for j := range need {
		need[j] -= min(need[j], frees[j])
	}
}

// met says whether nothing is needed any more.
func met(need []int64) bool {
	return !slices.ContainsFunc(need, func(n int64) bool { return n > 0 })
}

// reduced returns what is left to solve: the needs that are not met, and the pods up to
// the limit that free some of them.
func (p Problem) reduced(need []int64, limit int32) *reduced {
	r := &reduced{}
	var dims []int
	for j, n := range need {
		if n > 0 {
			dims = append(dims, j)
			r.need = append(r.need, n)
		}
	}
	for i, pod := range p.Pods {
		if pod.Forced || pod.Priority > limit {
			continue
		}
		frees := make([]int64, len(dims))
		useful := false
		for k, j := range dims {
			// More than what is needed is of no more use.
			frees[k] = min(pod.Frees[j], need[j])
			useful = useful || frees[k] > 0
		}
		if useful {
			r.items = append(r.items, item{
				index: i, class: pod.Class, frees: frees,
				memory: min(pod.Memory, mostCounted), cpu: min(pod.CPU, mostCounted),
			})
		}
	}
	return r
}
