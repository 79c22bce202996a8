package admit

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// subset is a set of pods with its cost; a later pod is a higher bit.
type subset struct {
	priority int64 // the highest
	count    [3]int
	amounts  [2]int64 // of memory and cpu
	pods     uint32
}

// better says whether a set is better than another by what solve promises.
func (a subset) better(b subset) bool {
	switch {
	case a.priority != b.priority:
		return a.priority < b.priority
	case a.count[guaranteed] != b.count[guaranteed]:
		return a.count[guaranteed] < b.count[guaranteed]
	case a.count[burstable] != b.count[burstable]:
		return a.count[burstable] < b.count[burstable]
	case a.count[bestEffort] != b.count[bestEffort]:
		return a.count[bestEffort] < b.count[bestEffort]
	case a.amounts != b.amounts:
		return slices.Compare(a.amounts[:], b.amounts[:]) < 0
	default:
		return a.pods > b.pods
	}
}

// with returns the set with one more pod.
func (a subset) with(i int, pod *potentialVictim) subset {
	a.priority = max(a.priority, int64(pod.priority))
	a.count[pod.class]++
	a.amounts[0] += pod.requests[memory]
	a.amounts[1] += pod.requests[cpu]
	a.pods |= 1 << i
	return a
}

// brute returns the best of all subsets that free enough.
func brute(p shortage) ([]int, bool) {
	var best subset
	found := false
	var try func(i int, set subset, frees [3]int64)
	try = func(i int, set subset, frees [3]int64) {
		if i < len(p.pods) {
			if !p.pods[i].forced {
				try(i+1, set, frees)
			}
			for j, n := range p.pods[i].requests {
				frees[j] += n
			}
			try(i+1, set.with(i, &p.pods[i]), frees)
			return
		}
		for j, n := range p.need {
			if frees[j] < n {
				return
			}
		}
		if !found || set.better(best) {
			best, found = set, true
		}
	}
	try(0, subset{priority: -1 << 40}, [3]int64{})
	var victims []int
	for set := best.pods; set != 0; set &= set - 1 {
		victims = append(victims, bits.TrailingZeros32(set))
	}
	return victims, found
}

// TestBruteForceAgrees compares 100,000 problems of up to 14 pods.
func TestBruteForceAgrees(t *testing.T) {
	t.Parallel()
	for _, m := range []mix{
		{name: "fine", classes: 3, rows: 2, share: 60},
		{name: "fine, one class", classes: 1, rows: 2, share: 60},
		{name: "coarse", classes: 3, rows: 3, share: 60, coarse: true},
		{name: "coarse, one class", classes: 1, rows: 2, share: 90, coarse: true},
		{name: "one row", classes: 1, rows: 1, share: 60},
		{name: "one row, all classes", classes: 3, rows: 1, share: 90, coarse: true},
		{name: "tiers", classes: 3, rows: 2, share: 40, tiers: 3, coarse: true},
		{name: "tiers, three rows", classes: 3, rows: 3, share: 90, tiers: 4},
		{name: "hard", classes: 3, rows: 3, share: 110},
		{name: "hard, one class", classes: 1, rows: 3, share: 100},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			for n := range 10_000 {
				m.pods = 1 + n%14
				p := m.random(rng)
				for i := range p.pods {
					p.pods[i].forced = rng.IntN(12) == 0
				}
				want, ok := brute(p)
				got, found := solve(p)
				if ok != found {
					t.Fatalf("round %d: solvable %v, found %v: %s", n, ok, found, spell(p))
				}
				if ok && (!slices.Equal(got.victims, want) || !got.optimal) {
					t.Fatalf("round %d: got %+v, want %v: %s", n, got, want, spell(p))
				}
			}
		})
	}
}

// TestBudgetSuffices: the budget cannot end the search among 14 pods, however they are.
func TestBudgetSuffices(t *testing.T) {
	t.Parallel()
	if sets := 1 << 14; defaultBudget < 2*sets {
		t.Errorf("14 pods have %d sets, and the budget is %d", sets, defaultBudget)
	}
}

// spell returns a problem as text.
func spell(p shortage) string {
	s := fmt.Sprintf("need %v\n", p.need)
	for i, pod := range p.pods {
		s += fmt.Sprintf("%d: %+v\n", i, pod)
	}
	return s
}
