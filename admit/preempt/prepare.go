package preempt

import (
	"cmp"
	"math"
	"slices"
)

// prepare puts the pods in order and works out the tables.
func (w *walk) prepare() {
	w.least = [classes]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	for _, i := range w.order {
		it := &w.items[i]
		w.least[it.class] = min(w.least[it.class], w.goal.of(it))
	}
	for c, n := range w.count {
		if n == 0 {
			w.least[c] = 0
		}
	}
	if w.goal == latest {
		slices.Reverse(w.order)
	}
	x := w.relax()
	target := 0.0
	if x.objective != nil {
		for _, v := range x.objective {
			target += v
		}
		if w.best != nil {
			target = w.units(w.value)
		}
	}
	m := x.multipliers(target, w.natural())
	if w.goal != latest {
		w.arrange(x.reducedCosts(m.order, x.objective != nil))
		x = w.relax()
	}
	w.tables = x.tables(m)
	for _, t := range w.tables {
		if t.objective {
			w.floor = max(w.floor, t.root(w.count))
		}
	}
	w.target = w.units(w.value) - 1
	w.chosen = make([]bool, len(w.order))
	w.link()
	for c, places := range x.places {
		for _, p := range places {
			w.byMemory[c] = append(w.byMemory[c], int32(p))
		}
		slices.SortStableFunc(w.byMemory[c], func(a, b int32) int {
			return cmp.Compare(w.at(int(a)).memory, w.at(int(b)).memory)
		})
	}
}

// natural returns, for an objective that is also one of the needs, multipliers by which
// no choice has less of it than is needed.
func (w *walk) natural() [][]float64 {
	if w.goal != leastMemory && w.goal != leastCPU {
		return nil
	}
	var natural [][]float64
	for j, need := range w.need {
		same := true
		for i := range w.items {
			same = same && w.items[i].frees[j] == min(w.goal.of(&w.items[i]), need)
		}
		if same {
			m := make([]float64, len(w.need), len(w.need)+1)
			m[j] = float64(need) / float64(w.unit)
			if w.memory > 0 {
				m = append(m, 0)
			}
			natural = append(natural, m)
		}
	}
	return natural
}

// arrange orders the walk: the highest class first, then whatever costs least beside what
// it contributes; pods that are alike, the latest first.
func (w *walk) arrange(costs []float64) {
	places := make([]int, len(w.order))
	for p := range places {
		places[p] = p
	}
	slices.SortFunc(places, func(a, b int) int {
		return cmp.Or(cmp.Compare(w.at(b).class, w.at(a).class), cmp.Compare(costs[a], costs[b]), b-a)
	})
	order := make([]int, len(places))
	for k, p := range places {
		order[k] = w.order[p]
	}
	w.order = order
}

// at returns the item at a place.
func (w *walk) at(p int) *item { return &w.items[w.order[p]] }

// link finds for each place the one before it that holds a pod like its own.
func (w *walk) link() {
	w.previous = make([]int, len(w.order))
	type key struct {
		class       Class
		memory, cpu int64
	}
	last := map[key][]int{}
	for p := range w.order {
		it := w.at(p)
		k := key{it.class, it.memory, it.cpu}
		w.previous[p] = -1
		found := false
		for x, q := range last[k] {
			if w.at(q).alike(it) {
				w.previous[p] = q
				last[k][x] = p
				found = true
				break
			}
		}
		if !found {
			last[k] = append(last[k], p)
		}
	}
}

// relax states the requirements and the objective as numbers.
func (w *walk) relax() *relaxation {
	n := len(w.order)
	x := &relaxation{count: w.count}
	for p := range w.order {
		c := w.at(p).class
		x.places[c] = append(x.places[c], p)
	}
	w.memoryRow = -1
	for j, need := range w.need {
		r := row{coefficients: make([]float64, n)}
		isMemory := true
		for p := range w.order {
			it := w.at(p)
			r.coefficients[p] = float64(it.frees[j]) / float64(need)
			isMemory = isMemory && it.frees[j] == min(it.memory, need)
		}
		if isMemory {
			w.memoryRow = j
		}
		x.rows = append(x.rows, r)
	}
	w.exact(x, w.memory, leastMemory)
	w.exact(x, w.cpu, leastCPU)
	if w.goal == leastMemory || w.goal == leastCPU {
		x.objective = make([]float64, n)
		for p := range w.order {
			it := w.at(p)
			x.objective[p] = float64((w.goal.of(it) - w.least[it.class]) / w.unit)
		}
	}
	return x
}

// exact adds a total that has to be met. With nothing to meet, no row is needed: every
// chosen pod must have nothing.
func (w *walk) exact(x *relaxation, total int64, g goal) {
	if total <= 0 {
		return
	}
	r := row{coefficients: make([]float64, len(w.order)), exact: true}
	for p := range w.order {
		r.coefficients[p] = float64(g.of(w.at(p))) / float64(total)
	}
	x.rows = append(x.rows, r)
}
