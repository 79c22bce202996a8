package admit

import (
	"cmp"
	"slices"
)

// mostCounted caps the memory and the cpu of a pod so that sums do not overflow: half a
// pebibyte, and as many thousandths of a processor.
const mostCounted = 1 << 49

// cost is the cost of victims, the most important part first; pods are weighted by class.
type cost struct{ pods, memory, cpu int64 }

// costOf makes one pod of a class cost more than a million of those below it.
func costOf(pod potentialVictim) cost {
	return cost{1 << (20 * pod.class), min(pod.requests[memory], mostCounted), min(pod.requests[cpu], mostCounted)}
}

func (c cost) plus(d cost) cost { return cost{c.pods + d.pods, c.memory + d.memory, c.cpu + d.cpu} }

func (c cost) compare(d cost) int {
	return cmp.Or(cmp.Compare(c.pods, d.pods), cmp.Compare(c.memory, d.memory), cmp.Compare(c.cpu, d.cpu))
}

// search looks for a better set of victims than the best one known, depth first.
type search struct {
	candidates []candidate             // in the order in which they are tried
	below      [guaranteed + 1][]int64 // what all candidates of lower classes free
	needs      [][]int64               // scratch space for each depth
	chosen     []int
	best       []int // the latest first
	cost       cost  // of best
	budget     int
	steps      int
}

// candidate is a pod with what the search knows of it and of the candidates after it.
type candidate struct {
	potentialVictim
	index int
	cost  cost
	equal bool    // to the candidate before, except for the index
	rest  []int64 // what this candidate and all later ones free, at most the need
	most  []int64 // the most that one of them of this class frees
}

// newSearch sorts the candidates: the highest class first, in a class those that leave the
// least of the need, and of equal ones the latest.
func newSearch(p shortage, candidates, best []int) *search {
	s := &search{budget: cmp.Or(p.budget, defaultBudget)}
	for _, i := range slices.Backward(best) {
		s.best = append(s.best, i)
		s.cost = s.cost.plus(costOf(p.pods[i]))
	}
	for _, i := range candidates {
		s.candidates = append(s.candidates, candidate{potentialVictim: p.pods[i], index: i, cost: costOf(p.pods[i])})
	}
	slices.SortFunc(s.candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.class, a.class), cmp.Compare(distance(p.need, a.requests), distance(p.need, b.requests)),
			slices.Compare(a.requests, b.requests), cmp.Compare(b.index, a.index))
	})
	s.sum(p.need)
	return s
}

// sum computes rest and most of each candidate.
func (s *search) sum(need []int64) {
	rest, most := make([]int64, len(need)), make([]int64, len(need))
	for k, c := range slices.Backward(s.candidates) {
		if k == len(s.candidates)-1 || s.candidates[k+1].class != c.class {
			s.below[c.class] = slices.Clone(rest)
			clear(most)
		}
		for j, n := range need {
			rest[j] += min(c.requests[j], n-rest[j])
			most[j] = max(most[j], min(c.requests[j], n))
		}
		c.rest, c.most = slices.Clone(rest), slices.Clone(most)
		c.equal = k > 0 && s.candidates[k-1].class == c.class && slices.Equal(s.candidates[k-1].requests, c.requests)
		s.candidates[k] = c
	}
}

// descend adds candidates, from an index on, to the chosen ones, which have a cost and leave
// a need, as long as the set can become better than the best one.
func (s *search) descend(from int, spent cost, need []int64) {
	depth := len(s.chosen)
	if depth == len(s.needs) {
		s.needs = append(s.needs, make([]int64, len(need)))
	}
	next := s.needs[depth]
	for k := from; k < len(s.candidates); k++ {
		c := &s.candidates[k]
		if c.equal && k > from {
			continue
		}
		s.steps++
		if s.steps > s.budget || s.prune(c, spent, need) {
			return
		}
		copy(next, need)
		reduce(next, c.requests)
		s.chosen = append(s.chosen, c.index)
		if met(next) {
			s.found(spent.plus(c.cost))
		} else {
			s.descend(k+1, spent.plus(c.cost), next)
		}
		s.chosen = s.chosen[:depth]
	}
}

// prune says whether adding the candidate and later ones cannot lead to a better set than the
// best one: they do not free what is needed, or too many of them would be victims.
func (s *search) prune(c *candidate, spent cost, need []int64) bool {
	fewest := int64(0)
	for j, n := range need {
		if n > c.rest[j] {
			return true
		}
		if n -= min(n, s.below[c.class][j]); n > 0 {
			fewest = max(fewest, (n-1)/c.most[j]+1)
		}
	}
	least := cost{max(1, fewest*c.cost.pods), min(need[memory], mostCounted), min(need[cpu], mostCounted)}
	return spent.plus(least).compare(s.cost) > 0
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
