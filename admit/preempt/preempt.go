// Package preempt chooses the pods to preempt so that a critical pod fits.
//
// Of two sets of victims, the better one has the lower highest priority; else fewer
// Guaranteed, then Burstable, then BestEffort pods; else requests less memory, then less cpu;
// else has the later pods.
package preempt

import (
	"cmp"
	"math"
	"slices"
)

// Class is a pod's QoS class.
type Class int

// The classes, in the order in which they are preempted.
const (
	BestEffort Class = iota
	Burstable
	Guaranteed
)

// The first resources of every Problem; cpu is in thousandths.
const (
	memory = iota
	cpu
)

// Pod is one that may be preempted.
type Pod struct {
	Priority int32
	Class    Class
	Requests []int64 // of each resource, in the order of Problem.Need; not negative
	Forced   bool    // must be preempted whatever it requests
}

// Problem is what is missing of each resource, and the candidates, in order.
type Problem struct {
	Need   []int64 // of memory, of cpu, then of any other resources
	Pods   []Pod
	Budget int // of steps of the search; 0 for the default
}

// defaultBudget is enough for any search among 14 pods, and usually ends one among hundreds within
// ten milliseconds.
const defaultBudget = 200_000

// Solution is a set of victims, of which none can be left out.
type Solution struct {
	Victims []int // indices of Problem.Pods, ascending
	Optimal bool  // no set is better
	Steps   int   // of the search
}

// Solve returns the best set of victims, or the best that the budget lets it find, which
// is never worse than the kubelet's choice. It returns false when all pods together do
// not free enough.
func Solve(p Problem) (Solution, bool) {
	limit := int32(math.MinInt32)
	var forced, others []int
	for i, pod := range p.Pods {
		if pod.Forced {
			forced = append(forced, i)
			limit = max(limit, pod.Priority)
		} else {
			others = append(others, i)
		}
	}
	p.Need = p.left(forced)
	if met(p.Need) {
		return Solution{Victims: forced, Optimal: true}, true
	}
	limit, ok := p.limit(others, limit)
	if !ok {
		return Solution{}, false
	}
	above := func(i int) bool { return p.Pods[i].Priority > limit }
	seed := p.seed(others)
	others = slices.DeleteFunc(others, above)
	if slices.ContainsFunc(seed, above) {
		seed = p.seed(others)
	}
	s := newSearch(p, others, seed)
	s.descend(0, cost{}, p.Need)
	solution := Solution{Victims: append(p.irreducible(s.best), forced...), Optimal: s.steps <= s.budget, Steps: s.steps}
	slices.Sort(solution.Victims)
	return solution, true
}

// limit returns the lowest priority, at least the given one, up to which the candidates free
// enough. It returns false when even all of them do not.
func (p Problem) limit(candidates []int, limit int32) (int32, bool) {
	candidates = slices.SortedStableFunc(slices.Values(candidates), func(a, b int) int {
		return cmp.Compare(p.Pods[a].Priority, p.Pods[b].Priority)
	})
	need := slices.Clone(p.Need)
	for _, i := range candidates {
		if !met(need) {
			reduce(need, p.Pods[i].Requests)
			limit = max(limit, p.Pods[i].Priority)
		}
	}
	return limit, met(need)
}

// reduce subtracts what a pod frees from what is needed, down to 0.
func reduce(need, requests []int64) {
	for j := range need {
		need[j] -= min(need[j], requests[j])
	}
}

// met says whether nothing more is needed.
func met(need []int64) bool {
	return !slices.ContainsFunc(need, func(n int64) bool { return n > 0 })
}

// left returns what is still needed once the victims are stopped.
func (p Problem) left(victims []int) []int64 {
	need := slices.Clone(p.Need)
	for _, i := range victims {
		reduce(need, p.Pods[i].Requests)
	}
	return need
}

// seed returns the kubelet's choice without the victims that are not needed.
func (p Problem) seed(candidates []int) []int { return p.irreducible(p.greedy(candidates)) }

// irreducible leaves out every victim that is not needed, the most valuable first.
func (p Problem) irreducible(victims []int) []int {
	slices.SortFunc(victims, func(a, b int) int {
		return cmp.Or(costOf(p.Pods[b]).compare(costOf(p.Pods[a])), cmp.Compare(a, b))
	})
	kept := victims
	for _, v := range victims {
		without := slices.DeleteFunc(slices.Clone(kept), func(i int) bool { return i == v })
		if met(p.left(without)) {
			kept = without
		}
	}
	return slices.Sorted(slices.Values(kept))
}
