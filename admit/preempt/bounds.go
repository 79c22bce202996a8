package preempt

import (
	"math"
	"slices"
)

// A choice of a fixed number of pods of each class has to satisfy rows: the sum of a
// row's coefficients over the chosen pods is at least 1, or exactly 1. Relaxing the rows
// by multipliers (Lagrange) gives for any multipliers a lower bound on the objective of
// all choices, or proves that there is none; the best ones bound as well as the linear
// relaxation does. What the bound is once some pods are chosen and others are not takes
// a look into a table.

// row is one requirement, scaled so that its right side is 1.
type row struct {
	coefficients []float64 // by place in the walk
	exact        bool
}

// relaxation is a walk's rows and objective as numbers to compute bounds with.
type relaxation struct {
	places    [classes][]int // of each class
	count     [classes]int   // pods to choose of each class
	rows      []row
	objective []float64 // by place; nil to look for any choice
	scratch   []float64
	order     []int
}

// reducedCosts returns the objective less what each place contributes to the rows.
func (x *relaxation) reducedCosts(multipliers []float64, objective bool) []float64 {
	var n int
	for _, places := range x.places {
		n += len(places)
	}
	costs := make([]float64, n)
	if objective && x.objective != nil {
		copy(costs, x.objective)
	}
	for j, m := range multipliers {
		if m == 0 {
			continue
		}
		for p, a := range x.rows[j].coefficients {
			costs[p] -= m * a
		}
	}
	return costs
}

// value returns the bound that multipliers give at the root, and the direction in which
// each of them would raise it.
func (x *relaxation) value(multipliers []float64, objective bool) (float64, []float64) {
	costs := x.reducedCosts(multipliers, objective)
	slope := make([]float64, len(x.rows))
	bound := 0.0
	for j, m := range multipliers {
		bound += m
		slope[j] = 1
	}
	for c, places := range x.places {
		x.order = append(x.order[:0], places...)
		slices.SortFunc(x.order, func(a, b int) int {
			switch {
			case costs[a] < costs[b]:
				return -1
			case costs[a] > costs[b]:
				return 1
			default:
				return a - b
			}
		})
		for _, p := range x.order[:min(x.count[c], len(x.order))] {
			bound += costs[p]
			for j := range x.rows {
				slope[j] -= x.rows[j].coefficients[p]
			}
		}
	}
	return bound, slope
}

// rounds is how many steps the search for good multipliers takes.
const rounds = 40

// ascend looks for multipliers with a high bound. The target is a value that the bound
// cannot exceed, or is not known to.
func (x *relaxation) ascend(start []float64, target float64, objective bool) []float64 {
	m := slices.Clone(start)
	best, bound := slices.Clone(m), math.Inf(-1)
	pace, stale := 1.0, 0
	for range rounds {
		value, slope := x.value(m, objective)
		if value > bound {
			bound, stale = value, 0
			copy(best, m)
		} else if stale++; stale == 4 {
			pace, stale = pace/2, 0
			copy(m, best)
			_, slope = x.value(m, objective)
		}
		square := 0.0
		for j, s := range slope {
			if m[j] > 0 || s > 0 || x.rows[j].exact {
				square += s * s
			}
		}
		if square < 1e-18 || value > target {
			break
		}
		step := pace * (target - bound) / square
		if !objective {
			step = pace * 0.5 / math.Sqrt(square)
		}
		for j, s := range slope {
			m[j] += step * s
			if !x.rows[j].exact {
				m[j] = max(m[j], 0)
			}
		}
		if !objective {
			normalise(m)
		}
	}
	return best
}

// normalise scales multipliers to a sum of 1.
func normalise(m []float64) {
	sum := 0.0
	for _, v := range m {
		sum += math.Abs(v)
	}
	if sum == 0 {
		return
	}
	for j := range m {
		m[j] /= sum
	}
}

// table gives a bound for every place in the walk and number of pods still to choose.
type table struct {
	costs     []float64 // by place
	base      float64   // the sum of the multipliers
	objective bool      // bounds the objective; otherwise more than nothing means no choice
	least     [classes][]float64
	width     [classes]int
}

// newTable works out the smallest sums of reduced costs of all numbers of pods that are
// left from each place on.
func (x *relaxation) newTable(multipliers []float64, objective bool) *table {
	t := &table{costs: x.reducedCosts(multipliers, objective), objective: objective}
	for _, m := range multipliers {
		t.base += m
	}
	n := len(t.costs)
	for c, places := range x.places {
		width := x.count[c] + 1
		t.width[c] = width
		if width == 1 {
			continue // nothing to choose: never looked at
		}
		least := make([]float64, (n+1)*width)
		sorted := x.scratch[:0]
		next := len(places) - 1
		for p := n; p >= 0; p-- {
			if next >= 0 && places[next] == p {
				at, _ := slices.BinarySearch(sorted, t.costs[p])
				sorted = slices.Insert(sorted, at, t.costs[p])
				sorted = sorted[:min(len(sorted), width-1)]
				next--
			} else if p < n {
				copy(least[p*width:(p+1)*width], least[(p+1)*width:(p+2)*width])
				continue
			}
			sum := 0.0
			for k := 1; k < width; k++ {
				if k <= len(sorted) {
					sum += sorted[k-1]
				} else {
					sum = math.Inf(1)
				}
				least[p*width+k] = sum
			}
		}
		x.scratch = sorted
		t.least[c] = least
	}
	return t
}

// root returns the bound on all choices.
func (t *table) root(count [classes]int) float64 {
	sum := t.base
	for c, n := range count {
		if n > 0 {
			sum += t.least[c][n]
		}
	}
	return sum
}

// multipliers are the ones to bound a walk with.
type multipliers struct {
	rows      [][]float64 // for any choice
	objective [][]float64
	order     []float64 // to order the walk by
}

// multipliers returns those of each row by itself and of all rows together; and for the
// objective, where there is one that should fall below the target, the given ones and the
// best that can be reached from them.
func (x *relaxation) multipliers(target float64, given [][]float64) multipliers {
	var m multipliers
	even := make([]float64, len(x.rows))
	for j := range x.rows {
		even[j] = 1
		for _, sign := range []float64{1, -1} {
			if sign > 0 || x.rows[j].exact {
				one := make([]float64, len(x.rows))
				one[j] = sign
				m.rows = append(m.rows, one)
			}
		}
	}
	normalise(even)
	m.order = even
	if len(x.rows) > 1 {
		m.order = x.ascend(even, 0, false)
		m.rows = append(m.rows, m.order)
		if !slices.Equal(m.order, even) {
			m.rows = append(m.rows, even)
		}
	}
	if x.objective != nil {
		// Multipliers by which all pods cost the same bound well and order nothing, so
		// the walk goes by those that are reached from nothing.
		zero := make([]float64, len(x.rows))
		m.order = x.ascend(zero, target, true)
		m.objective = [][]float64{m.order, zero}
		for _, start := range given {
			best := x.ascend(start, target, true)
			m.objective = append(m.objective, best, start)
		}
	}
	return m
}

// tables returns the tables that bound a walk.
func (x *relaxation) tables(m multipliers) []*table {
	tables := make([]*table, 0, len(m.rows)+len(m.objective))
	for _, v := range m.objective {
		tables = append(tables, x.newTable(v, true))
	}
	for _, v := range m.rows {
		tables = append(tables, x.newTable(v, false))
	}
	return tables
}
