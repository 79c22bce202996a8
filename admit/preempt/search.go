package preempt

import (
	"cmp"
	"slices"
)

// mostCounted is the memory or cpu beyond which a pod counts as no larger, so that sums
// do not overflow: half a pebibyte, or as many thousandths of a processor.
const mostCounted = 1 << 49

// cost is what victims cost, the most important first.
type cost struct {
	pods   int64 // weighted by class
	memory int64
	cpu    int64
}

// weight makes one pod of a class cost more than a million of those below it.
func (c Class) weight() int64 { return 1 << (20 * c) }

func costOf(pod Pod) cost {
	return cost{pod.Class.weight(), min(pod.Requests[memory], mostCounted), min(pod.Requests[cpu], mostCounted)}
}

func (c cost) plus(d cost) cost { return cost{c.pods + d.pods, c.memory + d.memory, c.cpu + d.cpu} }

func (c cost) compare(d cost) int {
	switch {
	case c.pods != d.pods:
		return cmp.Compare(c.pods, d.pods)
	case c.memory != d.memory:
		return cmp.Compare(c.memory, d.memory)
	default:
		return cmp.Compare(c.cpu, d.cpu)
	}
}

// later says whether the first of two ascending sets has the last pod that only one has.
func later(a, b []int) bool {
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) > 0 && (len(b) == 0 || a[len(a)-1] > b[len(b)-1])
}

// search looks for a better set of victims than the best one known, depth first.
type search struct {
	places []place
	below  [Guaranteed + 1][]int64 // what all candidates of lower classes free
	needs  [][]int64               // by depth, to work with
	chosen []int
	best   []int
	cost   cost // of best
	budget int
	steps  int
	cut    bool // the budget ended it
}

// place is one in the order in which candidates are tried.
type place struct {
	Pod
	index  int
	cost   cost
	leaves float64 // distance to the need
	again  bool    // differs from the one before in nothing but its index
	rest   []int64 // what the candidates from here on free, at most the need
	most   []int64 // the most that one of this class from here on frees
}

// newSearch puts the candidates in order: the highest class first, in it those that leave
// least of the need, and of equal ones the latest.
func newSearch(p Problem, candidates, best []int) *search {
	s := &search{best: best, budget: cmp.Or(p.Budget, DefaultBudget)}
	for _, i := range best {
		s.cost = s.cost.plus(costOf(p.Pods[i]))
	}
	for _, i := range candidates {
		pod := p.Pods[i]
		s.places = append(s.places, place{Pod: pod, index: i, cost: costOf(pod), leaves: distance(p.Need, pod.Requests)})
	}
	s.places = slices.DeleteFunc(s.places, func(pl place) bool { return !helps(p.Need, pl.Requests) })
	slices.SortFunc(s.places, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.Class, a.Class), cmp.Compare(a.leaves, b.leaves),
			slices.Compare(a.Requests, b.Requests), cmp.Compare(b.index, a.index))
	})
	s.sum(p.Need)
	return s
}

// helps says whether a pod frees some of what is needed.
func helps(need, requests []int64) bool {
	for j, n := range need {
		if n > 0 && requests[j] > 0 {
			return true
		}
	}
	return false
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
	for k := from; k < len(s.places) && !s.cut; k++ {
		pl := &s.places[k]
		if pl.again && k > from {
			continue
		}
		if s.steps++; s.steps > s.budget {
			s.cut = true
			return
		}
		if s.hopeless(pl, c, need) {
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

// hopeless says whether no set with only candidates from the place on added can be better
// than the best one: they do not free what is needed, or too many of them are.
func (s *search) hopeless(pl *place, c cost, need []int64) bool {
	fewest := int64(0)
	for j, n := range need {
		if n > pl.rest[j] {
			return true
		}
		if n -= min(n, s.below[pl.Class][j]); n > 0 {
			fewest = max(fewest, (n-1)/pl.most[j]+1)
		}
	}
	least := cost{max(1, fewest*pl.Class.weight()), min(need[memory], mostCounted), min(need[cpu], mostCounted)}
	return c.plus(least).compare(s.cost) > 0
}

// found keeps the chosen set if it is better than the best one.
func (s *search) found(c cost) {
	d := c.compare(s.cost)
	if d > 0 {
		return
	}
	set := slices.Sorted(slices.Values(s.chosen))
	if d < 0 || later(set, s.best) {
		s.best, s.cost = set, c
	}
}
