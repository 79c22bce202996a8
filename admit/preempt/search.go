package preempt

import (
	"math"
	"slices"
)

// goal is what a walk looks for among the choices that satisfy its rows.
type goal int

const (
	anyChoice   goal = iota
	leastMemory      // then the memory is known
	leastCPU         // at a given memory
	latest           // at given memory and cpu; the walk's order has the last pod first
)

// of returns what the goal makes as small as it can be.
func (g goal) of(it *item) int64 {
	switch g {
	case leastMemory:
		return it.memory
	case leastCPU:
		return it.cpu
	default:
		return 0
	}
}

// walk looks through the choices of given numbers of pods of each class, depth first and
// in a given order, and leaves out whatever cannot hold what it looks for.
type walk struct {
	*reduced
	goal   goal
	order  []int // items in the order in which they are tried
	count  [classes]int
	memory int64 // to be met exactly, unless negative
	cpu    int64 // to be met exactly, unless negative
	unit   int64 // divides all differences between values of the objective
	budget *int

	tables    []*table
	previous  []int            // the place of the item like this one that comes before it, or -1
	byMemory  [classes][]int32 // places of each class by memory
	memoryRow int              // the need that is memory, or -1
	pairs     []pair           // nil when they are not looked up
	chosen    []bool
	stack     []frame
	least     [classes]int64 // of the objective
	floor     float64        // no objective is less, in units above the least

	sharpest int // the table that ruled the last place out
	lookUp   int // the budget at which pairs are listed, if ever

	best   []int   // the best choice found, nil if there is none
	value  int64   // of its objective
	target float64 // what a better one has at most, in units above the least
}

// frame is the state of the walk at one depth.
type frame struct {
	place  int
	need   []int64
	memory int64
	cpu    int64
	sums   []float64 // of reduced costs, by table
}

// run walks until the best choice is known, and says whether that is proven. A choice
// that is known already only has to be beaten.
func (w *walk) run(known []int) bool {
	w.best = known
	w.value = w.objectiveOf(known)
	w.prepare()
	var left [classes]int
	total := 0
	for c, n := range w.count {
		left[c] = n
		total += n
	}
	w.stack = make([]frame, total+1)
	for d := range w.stack {
		w.stack[d].need = make([]int64, len(w.need))
		w.stack[d].sums = make([]float64, len(w.tables))
	}
	copy(w.stack[0].need, w.need)
	if w.done() {
		return true
	}
	w.lookUp = math.MinInt
	if w.paired(total) {
		w.lookUp = *w.budget - fewTries
	}
	w.descend(0, 0, &left, total)
	return *w.budget > 0
}

// objectiveOf returns what a choice's objective is.
func (w *walk) objectiveOf(chosen []int) int64 {
	sum := int64(0)
	for _, i := range chosen {
		sum += w.goal.of(&w.items[i])
	}
	return sum
}

// units returns a value of the objective in units above the least one that so many pods
// could have.
func (w *walk) units(value int64) float64 {
	for c, n := range w.count {
		value -= int64(n) * w.least[c]
	}
	return float64(value / w.unit)
}

// done says whether no better choice can exist than the one known.
func (w *walk) done() bool {
	if w.best == nil {
		return false
	}
	switch w.goal {
	case leastMemory, leastCPU:
		return w.units(w.value) <= math.Ceil(w.floor-tolerance(w.floor))
	case latest:
		return false
	default:
		return true
	}
}

// tolerance is more than what rounding can have changed a number by.
func tolerance(v float64) float64 { return 1e-6 + 1e-9*math.Abs(v) }

// descend tries the places from p on. It returns true when the walk is over.
func (w *walk) descend(depth, p int, left *[classes]int, total int) bool {
	if *w.budget--; *w.budget <= 0 {
		return true
	}
	switch {
	case total == 0:
		return met(w.stack[depth].need) && w.found(depth)
	case total == 1:
		return w.last(depth, p, left)
	case total == 2 && w.lookingUp():
		return w.lastTwo(depth, p, left)
	}
	f := &w.stack[depth]
	for ; p < len(w.order); p++ {
		if !w.hopeful(f, p, left) {
			return false
		}
		if !w.eligible(f, p, left) {
			continue
		}
		w.choose(depth, p)
		class := w.at(p).class
		left[class]--
		over := w.descend(depth+1, p+1, left, total-1)
		left[class]++
		w.chosen[p] = false
		if over {
			return true
		}
	}
	return false
}

// eligible says whether the pod at a place may be chosen next: its like before it has
// been, and no total is exceeded.
func (w *walk) eligible(f *frame, p int, left *[classes]int) bool {
	it := w.at(p)
	switch {
	case left[it.class] == 0,
		w.previous[p] >= 0 && !w.chosen[w.previous[p]],
		w.memory >= 0 && f.memory+it.memory > w.memory,
		w.cpu >= 0 && f.cpu+it.cpu > w.cpu:
		return false
	}
	return true
}

// choose takes the pod at a place into the choice, at a depth.
func (w *walk) choose(depth, p int) {
	f, next, it := &w.stack[depth], &w.stack[depth+1], w.at(p)
	f.place = p
	next.memory, next.cpu = f.memory+it.memory, f.cpu+it.cpu
	for j := range f.need {
		next.need[j] = f.need[j] - min(f.need[j], it.frees[j])
	}
	for t, tab := range w.tables {
		next.sums[t] = f.sums[t] + tab.costs[p]
	}
	w.chosen[p] = true
}

// hopeful says whether a choice from place p on can be what the walk looks for. Once it
// cannot, none from a later place can either.
func (w *walk) hopeful(f *frame, p int, left *[classes]int) bool {
	if w.hopeless(w.sharpest, f, p, left) {
		return false
	}
	for k := range w.tables {
		if k != w.sharpest && w.hopeless(k, f, p, left) {
			w.sharpest = k // is likely to be so at the next place
			return false
		}
	}
	return true
}

// hopeless says whether a table rules the place out.
func (w *walk) hopeless(k int, f *frame, p int, left *[classes]int) bool {
	t := w.tables[k]
	bound := t.base + f.sums[k]
	for c, n := range left {
		if n > 0 {
			bound += t.least[c][p*t.width[c]+n]
		}
	}
	if !t.objective {
		return bound > 1e-9
	}
	return w.best != nil && bound > w.target+tolerance(bound)
}

// window is what the pods that complete a choice may have together.
type window struct {
	memory, highest int64
	cpu, most       int64
}

// window returns what is left of the totals to be met, or lets a choice be better than
// the best one known.
func (w *walk) window(f *frame) window {
	v := window{highest: math.MaxInt64, most: math.MaxInt64}
	switch {
	case w.memory >= 0:
		v.memory = w.memory - f.memory
		v.highest = v.memory
	case w.goal == leastMemory && w.best != nil:
		v.highest = w.value - 1 - f.memory
	}
	if w.memoryRow >= 0 {
		v.memory = max(v.memory, f.need[w.memoryRow])
	}
	switch {
	case w.cpu >= 0:
		v.cpu = w.cpu - f.cpu
		v.most = v.cpu
	case w.goal == leastCPU && w.best != nil:
		v.most = w.value - 1 - f.cpu
	}
	return v
}

// last completes a choice by its last pod.
func (w *walk) last(depth, p int, left *[classes]int) bool {
	f := &w.stack[depth]
	if !w.hopeful(f, p, left) {
		return false
	}
	class := slices.IndexFunc(left[:], func(n int) bool { return n > 0 })
	v := w.window(f)
	places := w.byMemory[class]
	found := -1
	for at, steps := w.search(places, v.memory), 1; at < len(places); at, steps = at+1, steps+1 {
		q := int(places[at])
		it := w.at(q)
		if it.memory > v.highest {
			break
		}
		if steps&15 == 0 {
			*w.budget--
		}
		if q < p || it.cpu < v.cpu || it.cpu > v.most || !enough(it.frees, f.need) {
			continue
		}
		if found < 0 || w.better(q, found) {
			found = q
		}
		if w.goal == leastMemory || w.goal == anyChoice {
			break
		}
	}
	if found < 0 {
		return false
	}
	f.place = found
	return w.found(depth + 1)
}

// search returns the first of the places whose memory is at least the lowest.
func (w *walk) search(places []int32, lowest int64) int {
	lo, hi := 0, len(places)
	for lo < hi {
		mid := (lo + hi) / 2
		if w.at(int(places[mid])).memory < lowest {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// better says whether one last pod is better than another of the same memory.
func (w *walk) better(q, than int) bool {
	if w.goal == leastCPU && w.at(q).cpu != w.at(than).cpu {
		return w.at(q).cpu < w.at(than).cpu
	}
	return q < than
}

// enough says whether one pod frees all that is needed.
func enough(frees, need []int64) bool {
	for j, n := range need {
		if frees[j] < n {
			return false
		}
	}
	return true
}

// found keeps the choice that the first frames hold. It returns true when no better one
// is looked for.
func (w *walk) found(depth int) bool {
	w.best = nil
	for d := range depth {
		w.best = append(w.best, w.order[w.stack[d].place])
	}
	slices.Sort(w.best)
	w.value = w.objectiveOf(w.best)
	w.target = w.units(w.value) - 1
	return w.goal == latest || w.done()
}
