package preempt

import (
	"cmp"
	"slices"
)

// classes is how many classes there are.
const classes = int(Guaranteed) + 1

// mostCounted is the memory or cpu beyond which a pod counts as no larger, so that sums
// of them stay exact: half a pebibyte, or as many thousandths of a processor.
const mostCounted = 1 << 49

// item is a pod that frees some of what is needed.
type item struct {
	index  int // in Problem.Pods
	class  Class
	frees  []int64
	memory int64
	cpu    int64
}

// alike says whether two pods differ in nothing but their place in order.
func (it *item) alike(other *item) bool {
	return it.class == other.class && it.memory == other.memory && it.cpu == other.cpu && slices.Equal(it.frees, other.frees)
}

// reduced is a problem without forced pods, met needs, useless pods and priorities.
type reduced struct {
	need  []int64
	items []item // in order
}

// cost is what a choice costs, most important first.
type cost struct {
	count  [classes]int
	memory int64
	cpu    int64
}

func (c cost) compare(d cost) int {
	return cmp.Or(
		cmp.Compare(c.count[Guaranteed], d.count[Guaranteed]),
		cmp.Compare(c.count[Burstable], d.count[Burstable]),
		cmp.Compare(c.count[BestEffort], d.count[BestEffort]),
		cmp.Compare(c.memory, d.memory),
		cmp.Compare(c.cpu, d.cpu),
	)
}

// costOf returns the cost of a choice.
func (r *reduced) costOf(chosen []int) cost {
	var c cost
	for _, i := range chosen {
		it := &r.items[i]
		c.count[it.class]++
		c.memory += it.memory
		c.cpu += it.cpu
	}
	return c
}

// later compares two ascending choices of one size: the one that holds the last pod in
// which they differ is the smaller.
func later(a, b []int) int {
	for i := 1; i <= min(len(a), len(b)); i++ {
		if c := cmp.Compare(b[len(b)-i], a[len(a)-i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// compare orders ascending choices, the better one first.
func (r *reduced) compare(a, b []int) int {
	return cmp.Or(r.costOf(a).compare(r.costOf(b)), later(a, b))
}

// compareWorth orders pods by what it costs to end them.
func (r *reduced) compareWorth(i, k int) int {
	a, b := &r.items[i], &r.items[k]
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.memory, b.memory), cmp.Compare(a.cpu, b.cpu), cmp.Compare(b.index, a.index))
}

// covers says whether the choice frees all that is needed.
func (r *reduced) covers(chosen []int) bool {
	need := slices.Clone(r.need)
	for _, i := range chosen {
		reduce(need, r.items[i].frees)
	}
	return met(need)
}

// irredundant drops from a choice every pod that is not needed, the most valuable first.
func (r *reduced) irredundant(chosen []int) []int {
	chosen = slices.Clone(chosen)
	slices.SortFunc(chosen, func(a, b int) int { return r.compareWorth(b, a) })
	for k := 0; k < len(chosen); {
		without := slices.Delete(slices.Clone(chosen), k, k+1)
		if r.covers(without) {
			chosen = without
			continue
		}
		k++
	}
	slices.Sort(chosen)
	return chosen
}
