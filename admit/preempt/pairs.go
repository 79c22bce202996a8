package preempt

import (
	"cmp"
	"math"
	"slices"
)

// mostPaired is the number of pods up to which all pairs of them are listed, so that the
// last two pods of a choice are found by looking them up.
const mostPaired = 1024

// fewTries is how much of the budget a walk spends before it lists pairs: most need less.
const fewTries = 2000

// pair is two places of a walk.
type pair struct {
	memory, cpu int64 // of both
	p, q        int32 // p comes first
}

// pairUp lists all pairs of places by memory and then cpu.
func (w *walk) pairUp() {
	n := len(w.order)
	w.pairs = make([]pair, 0, n*(n-1)/2)
	for p := range n {
		a := w.at(p)
		for q := p + 1; q < n; q++ {
			b := w.at(q)
			w.pairs = append(w.pairs, pair{a.memory + b.memory, a.cpu + b.cpu, int32(p), int32(q)})
		}
	}
	slices.SortFunc(w.pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.memory, b.memory), cmp.Compare(a.cpu, b.cpu), cmp.Compare(a.p, b.p), cmp.Compare(a.q, b.q))
	})
}

// paired says whether looking pairs up is quicker than trying them.
func (w *walk) paired(total int) bool {
	if total < 3 || len(w.order) > mostPaired {
		return false
	}
	return w.memory >= 0 || w.goal == leastMemory && w.memoryRow >= 0
}

// firstPair returns the first pair that has at least the given memory and, at just that
// memory, at least the given cpu.
func (w *walk) firstPair(memory, cpu int64) int {
	lo, hi := 0, len(w.pairs)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m := &w.pairs[mid]; m.memory < memory || m.memory == memory && m.cpu < cpu {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// lookingUp says whether the last two pods are looked up, and lists the pairs when the
// time has come.
func (w *walk) lookingUp() bool {
	if *w.budget < w.lookUp {
		w.lookUp = math.MinInt
		w.pairUp()
	}
	return w.pairs != nil
}

// lastTwo completes a choice by its last two pods.
func (w *walk) lastTwo(depth, p int, left *[classes]int) bool {
	f := &w.stack[depth]
	v := w.window(f)
	found := -1
	for at, steps := w.firstPair(v.memory, v.cpu), 1; at < len(w.pairs); at, steps = at+1, steps+1 {
		x := &w.pairs[at]
		if x.memory > v.highest || w.memory >= 0 && x.cpu > v.most {
			break
		}
		if steps&15 == 0 {
			*w.budget--
		}
		if int(x.p) < p || !w.completes(f, x, left) {
			continue
		}
		if found < 0 || w.pairs[found].after(x) {
			found = at
		}
		if w.goal != latest {
			break // the least comes first
		}
	}
	if found < 0 {
		return false
	}
	w.stack[depth].place, w.stack[depth+1].place = int(w.pairs[found].p), int(w.pairs[found].q)
	return w.found(depth + 2)
}

// after says whether a pair comes after another in the walk.
func (x *pair) after(y *pair) bool { return x.p > y.p || x.p == y.p && x.q > y.q }

// completes says whether a pair is of the classes that are left and frees all that is
// needed.
func (w *walk) completes(f *frame, x *pair, left *[classes]int) bool {
	a, b := w.at(int(x.p)), w.at(int(x.q))
	if left[a.class] == 0 || left[b.class] == 0 || a.class == b.class && left[a.class] < 2 {
		return false
	}
	for j, n := range f.need {
		if n -= min(n, a.frees[j]); b.frees[j] < n {
			return false
		}
	}
	return true
}
