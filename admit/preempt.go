package admit

import (
	"cmp"
	"math"
	"slices"
)

// qosClass is a pod's QoS class.
type qosClass int

// The classes, in the order in which they are preempted.
const (
	bestEffort qosClass = iota
	burstable
	guaranteed
)

// The first resources of every shortage; cpu is in thousandths.
const (
	memory = iota
	cpu
)

// potentialVictim is a pod that may be preempted.
type potentialVictim struct {
	priority int32
	class    qosClass
	requests []int64 // of each resource, in the order of shortage.need; not negative
	forced   bool    // must be preempted whatever it requests
}

// shortage is what is missing of each resource, and the candidates, in order.
type shortage struct {
	need   []int64 // of memory, of cpu, then of any other resources
	pods   []potentialVictim
	budget int // of steps of the search; 0 for the default
}

// defaultBudget is enough for any search among 14 pods, and usually ends one among hundreds within
// ten milliseconds.
const defaultBudget = 200_000

// solution is a set of victims, of which none can be left out.
//
// Of two sets of victims, the better one has the lower highest priority; else fewer
// Guaranteed, then Burstable, then BestEffort pods; else requests less memory, then less cpu;
// else has the later pods.
type solution struct {
	victims []int // indices of shortage.pods, ascending
	optimal bool  // no set is better
	steps   int   // of the search
}

// solve returns the best set of victims, or the best that the budget lets it find, which
// is never worse than the kubelet's choice. It returns false when all pods together do
// not free enough.
func solve(p shortage) (solution, bool) {
	limit := int32(math.MinInt32)
	var forced, others []int
	for i, pod := range p.pods {
		if pod.forced {
			forced = append(forced, i)
			limit = max(limit, pod.priority)
		} else {
			others = append(others, i)
		}
	}
	p.need = p.left(forced)
	if met(p.need) {
		return solution{victims: forced, optimal: true}, true
	}
	limit, ok := p.limit(others, limit)
	if !ok {
		return solution{}, false
	}
	above := func(i int) bool { return p.pods[i].priority > limit }
	seed := p.seed(others)
	others = slices.DeleteFunc(others, above)
	if slices.ContainsFunc(seed, above) {
		seed = p.seed(others)
	}
	s := newSearch(p, others, seed)
	s.descend(0, cost{}, p.need)
	solution := solution{victims: append(p.irreducible(s.best), forced...), optimal: s.steps <= s.budget, steps: s.steps}
	slices.Sort(solution.victims)
	return solution, true
}

// limit returns the lowest priority, at least the given one, up to which the candidates free
// enough. It returns false when even all of them do not.
func (p shortage) limit(candidates []int, limit int32) (int32, bool) {
	candidates = slices.SortedStableFunc(slices.Values(candidates), func(a, b int) int {
		return cmp.Compare(p.pods[a].priority, p.pods[b].priority)
	})
	need := slices.Clone(p.need)
	for _, i := range candidates {
		if !met(need) {
			reduce(need, p.pods[i].requests)
			limit = max(limit, p.pods[i].priority)
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
func (p shortage) left(victims []int) []int64 {
	need := slices.Clone(p.need)
	for _, i := range victims {
		reduce(need, p.pods[i].requests)
	}
	return need
}

// seed returns the kubelet's choice without the victims that are not needed.
func (p shortage) seed(candidates []int) []int { return p.irreducible(p.greedy(candidates)) }

// irreducible leaves out every victim that is not needed, the most valuable first.
func (p shortage) irreducible(victims []int) []int {
	slices.SortFunc(victims, func(a, b int) int {
		return cmp.Or(costOf(p.pods[b]).compare(costOf(p.pods[a])), cmp.Compare(a, b))
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
