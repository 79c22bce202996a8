package preempt

import (
	"cmp"
	"slices"
)

// solver finds the smallest choice of a reduced problem, one part of the cost after the
// other: each is the smallest at what those before it have been found to be.
type solver struct {
	*reduced
	best   []int // the best choice known
	proven bool
	left   int // of the budget
}

// solve returns the smallest choice, as indices of the problem's pods.
func (r *reduced) solve(budget int) Answer {
	if len(r.need) == 0 {
		return Answer{Optimal: true}
	}
	if budget <= 0 {
		budget = DefaultBudget
	}
	seed, _ := r.greedy()
	s := &solver{reduced: r, best: r.irredundant(seed), proven: true, left: budget}
	for class := Guaranteed; class >= BestEffort; class-- {
		s.fewest(class)
	}
	c := s.costOf(s.best)
	s.walk(walk{goal: leastMemory, count: c.count, memory: -1, cpu: -1})
	c = s.costOf(s.best)
	s.walk(walk{goal: leastCPU, count: c.count, memory: c.memory, cpu: -1})
	c = s.costOf(s.best)
	s.walk(walk{goal: latest, count: c.count, memory: c.memory, cpu: c.cpu})

	answer := Answer{Optimal: s.proven, Nodes: budget - s.left}
	for _, i := range s.best {
		answer.Victims = append(answer.Victims, r.items[i].index)
	}
	return answer
}

// lend returns a part of what is left of the budget: half, or all for the last walk, while
// there is a proof to win, and little when there is none any more.
func (s *solver) lend(g goal) int {
	switch {
	case !s.proven:
		return s.left/16 + 1
	case g == latest:
		return s.left + 1
	default:
		return s.left/2 + 1
	}
}

// walk looks for a better choice than the best one by one walk.
func (s *solver) walk(w walk) {
	w.unit = 1
	if w.goal != latest {
		if w.unit = s.unitOf(&w); w.unit == 0 {
			return // all choices are worth the same
		}
	}
	lent := s.lend(w.goal)
	budget := lent
	w.reduced, w.budget = s.reduced, &budget
	for i := range s.items {
		if w.count[s.items[i].class] > 0 {
			w.order = append(w.order, i)
		}
	}
	proven := w.run(s.best)
	s.proven = s.proven && proven
	s.left -= lent - max(budget, 0)
	if s.compare(w.best, s.best) < 0 {
		s.best = w.best
	}
}

// fewest lowers the number of pods of a class as far as it goes: as long as there is a
// choice of so few, beside the numbers of the classes above and all pods of those below.
func (s *solver) fewest(class Class) {
	count := s.costOf(s.best).count
	need := slices.Clone(s.need)
	for i := range s.items {
		if s.items[i].class < class {
			reduce(need, s.items[i].frees)
		}
	}
	sub := s.above(class, need)
	for k := sub.atLeast(class, count); k < count[class]; k++ {
		lent := s.lend(anyChoice)
		budget := lent
		w := walk{goal: anyChoice, reduced: sub, memory: -1, cpu: -1, unit: 1, budget: &budget}
		w.count = sub.available(count, class, k)
		for i := range sub.items {
			w.order = append(w.order, i)
		}
		proven := w.run(nil)
		s.left -= lent - max(budget, 0)
		if w.best != nil {
			s.adopt(sub, w.best, class)
			return
		}
		s.proven = s.proven && proven
	}
}

// above returns the problem of the pods of a class and those above it, with indices of
// this problem's items.
func (r *reduced) above(class Class, need []int64) *reduced {
	sub := &reduced{}
	var rows []int
	for j, n := range need {
		if n > 0 {
			rows = append(rows, j)
			sub.need = append(sub.need, n)
		}
	}
	for i := range r.items {
		it := r.items[i]
		if it.class < class {
			continue
		}
		frees := make([]int64, len(rows))
		useful := false
		for k, j := range rows {
			frees[k] = min(it.frees[j], need[j])
			useful = useful || frees[k] > 0
		}
		if useful {
			it.index, it.frees = i, frees
			sub.items = append(sub.items, it)
		}
	}
	return sub
}

// available returns how many pods to choose of each class: those above the given one as
// counted, k of it, none below, and never more than there are.
func (r *reduced) available(count [classes]int, class Class, k int) [classes]int {
	var there, available [classes]int
	for i := range r.items {
		there[r.items[i].class]++
	}
	for c := class; c <= Guaranteed; c++ {
		available[c] = min(count[c], there[c])
	}
	available[class] = min(k, there[class])
	return available
}

// atLeast returns how many pods of a class are needed for any one of the needs, beside
// the best of the classes above.
func (r *reduced) atLeast(class Class, count [classes]int) int {
	most := 0
	for j, n := range r.need {
		var frees [classes][]int64
		for i := range r.items {
			frees[r.items[i].class] = append(frees[r.items[i].class], r.items[i].frees[j])
		}
		for c := Guaranteed; c > class; c-- {
			slices.SortFunc(frees[c], func(a, b int64) int { return cmp.Compare(b, a) })
			for _, f := range frees[c][:min(count[c], len(frees[c]))] {
				n -= min(n, f)
			}
		}
		slices.SortFunc(frees[class], func(a, b int64) int { return cmp.Compare(b, a) })
		k := 0
		for ; n > 0 && k < len(frees[class]); k++ {
			n -= min(n, frees[class][k])
		}
		most = max(most, k)
	}
	return most
}

// adopt makes a choice for a class and those above, with whatever is needed below it, the
// best one.
func (s *solver) adopt(sub *reduced, chosen []int, class Class) {
	var choice []int
	for _, i := range chosen {
		choice = append(choice, sub.items[i].index)
	}
	for i := range s.items {
		if s.items[i].class < class {
			choice = append(choice, i)
		}
	}
	s.best = s.irredundant(choice)
}

// unitOf returns the largest number that divides how much the objective of any two pods
// of one class differs; 0 when it never does.
func (s *solver) unitOf(w *walk) int64 {
	var first [classes]*item
	unit := int64(0)
	for i := range s.items {
		it := &s.items[i]
		if w.count[it.class] == 0 {
			continue
		}
		if first[it.class] == nil {
			first[it.class] = it
		}
		d := w.goal.of(it) - w.goal.of(first[it.class])
		unit = divisor(unit, max(d, -d))
	}
	return unit
}

// divisor returns the greatest common divisor.
func divisor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
