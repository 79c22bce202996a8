// Package preempt chooses the pods that have to go so that a critical pod fits.
//
// A set of victims is better than another, in this order: by the lower highest priority;
// by fewer Guaranteed, then Burstable, then BestEffort pods; by less memory, then less cpu
// that they request; by pods that come later in order.
package preempt

import (
	"cmp"
	"math"
	"slices"
)

// Class is a pod's QoS class.
type Class int

// The classes, the one to preempt first in front.
const (
	BestEffort Class = iota
	Burstable
	Guaranteed
)

// The resources that every Problem names first; cpu is in thousandths.
const (
	memory = iota
	cpu
)

// Pod is one that may be preempted.
type Pod struct {
	Priority int32
	Class    Class
	Requests []int64 // of each resource, in the order of Problem.Need; not negative
	Forced   bool    // has to go whatever it requests
}

// Problem is what is missing of each resource, and the pods that may go, in order.
type Problem struct {
	Need   []int64 // of memory, of cpu, then of any other resources
	Pods   []Pod
	Budget int // of steps of the search; 0 for DefaultBudget
}

// DefaultBudget is more than the steps of any search among 14 pods, and ends one among
// hundreds within a few milliseconds.
const DefaultBudget = 200_000

// Answer is a set of victims, of which none can be left out.
type Answer struct {
	Victims []int // indices of Problem.Pods, ascending
	Optimal bool  // no set is better
	Steps   int   // of the search
}

// Solve returns the best set of victims, or the best that the budget lets it find, which
// is never worse than the kubelet's choice. It returns false when all pods together do
// not free enough.
func Solve(p Problem) (Answer, bool) {
	limit, ok := p.priorityLimit()
	if !ok {
		return Answer{}, false
	}
	var forced, others []int
	need := slices.Clone(p.Need)
	for i, pod := range p.Pods {
		if pod.Forced {
			forced = append(forced, i)
			reduce(need, pod.Requests)
		} else {
			others = append(others, i)
		}
	}
	if met(need) {
		return Answer{Victims: forced, Optimal: true}, true
	}
	above := func(i int) bool { return p.Pods[i].Priority > limit }
	p.Need = need
	seed := p.seed(others)
	others = slices.DeleteFunc(others, above)
	if slices.ContainsFunc(seed, above) {
		seed = p.seed(others)
	}
	s := newSearch(p, others, seed)
	s.descend(0, cost{}, need)
	answer := Answer{Victims: append(p.irreducible(s.best), forced...), Optimal: !s.cut, Steps: s.steps}
	slices.Sort(answer.Victims)
	return answer, true
}

// priorityLimit returns the lowest priority that the highest victim can have: the pods up
// to it free enough. It returns false when all pods do not.
func (p Problem) priorityLimit() (int32, bool) {
	need := slices.Clone(p.Need)
	limit := int32(math.MinInt32)
	var others []Pod
	for _, pod := range p.Pods {
		if pod.Forced {
			reduce(need, pod.Requests)
			limit = max(limit, pod.Priority)
		} else {
			others = append(others, pod)
		}
	}
	slices.SortStableFunc(others, func(a, b Pod) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, pod := range others {
		if met(need) {
			break
		}
		reduce(need, pod.Requests)
		limit = max(limit, pod.Priority)
	}
	return limit, met(need)
}

// reduce subtracts what a pod frees from what is needed, down to nothing.
func reduce(need, requests []int64) {
	for j := range need {
		need[j] -= min(need[j], requests[j])
	}
}

// met says whether nothing is needed any more.
func met(need []int64) bool {
	return !slices.ContainsFunc(need, func(n int64) bool { return n > 0 })
}

// seed returns the kubelet's choice without the victims that are not needed.
func (p Problem) seed(candidates []int) []int {
	victims, _ := p.greedy(candidates)
	return p.irreducible(victims)
}

// irreducible leaves out every victim that is not needed, the most valuable first.
func (p Problem) irreducible(victims []int) []int {
	victims = slices.Clone(victims)
	slices.SortFunc(victims, func(a, b int) int {
		return cmp.Or(costOf(p.Pods[b]).compare(costOf(p.Pods[a])), cmp.Compare(a, b))
	})
	for k := 0; k < len(victims); {
		need := slices.Clone(p.Need)
		for m, i := range victims {
			if m != k {
				reduce(need, p.Pods[i].Requests)
			}
		}
		if met(need) {
			victims = slices.Delete(victims, k, k+1)
		} else {
			k++
		}
	}
	slices.Sort(victims)
	return victims
}
