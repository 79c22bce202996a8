package preempt

import (
	"cmp"
	"slices"
)

// mostCounted is the memory or cpu beyond which a pod counts as no larger, so that sums
// do not overflow: half a pebibyte, or as many thousandths of a processor.
const mostCounted = 1 << 49

// cost is what victims cost, the most important first; pods are weighted by class.
type cost struct{ pods, memory, cpu int64 }

// costOf makes one pod of a class cost more than a million of those below it.
func costOf(pod Pod) cost {
	return cost{1 << (20 * pod.Class), min(pod.Requests[memory], mostCounted), min(pod.Requests[cpu], mostCounted)}
}

func (c cost) plus(d cost) cost { return cost{c.pods + d.pods, c.memory + d.memory, c.cpu + d.cpu} }

func (c cost) compare(d cost) int {
	return cmp.Or(cmp.Compare(c.pods, d.pods), cmp.Compare(c.memory, d.memory), cmp.Compare(c.cpu, d.cpu))
}

// search looks for a better set of victims than the best one known, depth first.
type search struct {
	places []place
	below  [Guaranteed + 1][]int64 // what all candidates of lower classes free
	needs  [][]int64               // by depth, to work with
	chosen []int
	best   []int // the latest first
	cost   cost  // of best
	budget int
	steps  int
}

// place is one in the order in which candidates are tried.
type place struct {
	Pod
	index int
	cost  cost
	again bool    // differs from the one before in nothing but its index
	rest  []int64 // what the candidates from here on free, at most the need
	most  []int64 // the most that one of this class from here on frees
}

// newSearch puts the candidates in order: the highest class first, in it those that leave
// least of the need, and of equal ones the latest.
func newSearch(p Problem, candidates, best []int) *search {
	s := &search{budget: cmp.Or(p.Budget, DefaultBudget)}
	for _, i := range slices.Backward(best) {
		s.best = append(s.best, i)
		s.cost = s.cost.plus(costOf(p.Pods[i]))
	}
	for _, i := range candidates {
		s.places = append(s.places, place{Pod: p.Pods[i], index: i, cost: costOf(p.Pods[i])})
	}
	slices.SortFunc(s.places, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.Class, a.Class), cmp.Compare(distance(p.Need, a.Requests), distance(p.Need, b.Requests)),
			slices.Compare(a.Requests, b.Requests), cmp.Compare(b.index, a.index))
	})
	s.sum(p.Need)
	return s
}

// sum works out what there is from each place on.
func (s *search) sum(need []int64) {
	rest, most := make([]int64, len(need)), make([]int64, len(need))
	for k, pl := range slices.Backward(s.places) {
		if k == len(s.places)-1 || s.places[k+1].Class != pl.Class {
			s.below[pl.Class] = slices.Clone(rest)
			clear(most)
		}
		for j, n := range need {
			rest[j] += min(pl.Requests[j], n-rest[j])
			most[j] = max(most[j], min(pl.Requests[j], n))
		}
		pl.rest, pl.most = slices.Clone(rest), slices.Clone(most)
		pl.again = k > 0 && s.places[k-1].Class == pl.Class && slices.Equal(s.places[k-1].Requests, pl.Requests)
		s.places[k] = pl
	}
}

// descend adds candidates from a place on to the chosen ones, which have a cost and leave
// a need, as long as the set can become better than the best one.
func (s *search) descend(from int, c cost, need []int64) {
	depth := len(s.chosen)
	if depth == len(s.needs) {
		s.needs = append(s.needs, make([]int64, len(need)))
	}
	next := s.needs[depth]
	for k := from; k < len(s.places); k++ {
		pl := &s.places[k]
		if pl.again && k > from {
			continue
		}
		s.steps++
		if s.steps > s.budget || s.prune(pl, c, need) {
			return
		}
		copy(next, need)
		reduce(next, pl.Requests)
		s.chosen = append(s.chosen, pl.index)
		if met(next) {
			s.found(c.plus(pl.cost))
		} else {
			s.descend(k+1, c.plus(pl.cost), next)
		}
		s.chosen = s.chosen[:depth]
	}
}

// prune says whether no set with candidates from the place on added can be better than the
// best one: they do not free what is needed, or too many of them would have to go.
func (s *search) prune(pl *place, c cost, need []int64) bool {
	fewest := int64(0)
	for j, n := range need {
		if n > pl.rest[j] {
			return true
		}
		if n -= min(n, s.below[pl.Class][j]); n > 0 {
			fewest = max(fewest, (n-1)/pl.most[j]+1)
		}
	}
	least := cost{max(1, fewest*pl.cost.pods), min(need[memory], mostCounted), min(need[cpu], mostCounted)}
	return c.plus(least).compare(s.cost) > 0
}

// found keeps the chosen set if it is better than the best one.
func (s *search) found(c cost) {
	d := c.compare(s.cost)
	if d > 0 {
		return
	}
	set := slices.Sorted(slices.Values(s.chosen))
	slices.Reverse(set)
	if d < 0 || slices.Compare(set, s.best) > 0 {
		s.best, s.cost = set, c
	}
}
