package preempt

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// brute returns the best of all subsets.
func brute(p Problem) ([]int, bool) {
	r := &reduced{}
	for i, pod := range p.Pods {
		r.items = append(r.items, item{index: i, class: pod.Class, frees: pod.Frees, memory: min(pod.Memory, mostCounted), cpu: min(pod.CPU, mostCounted)})
	}
	r.need = p.Need
	var best []int
	found := false
	highest := func(chosen []int) int64 {
		top := int64(-1 << 40)
		for _, i := range chosen {
			top = max(top, int64(p.Pods[i].Priority))
		}
		return top
	}
	for set := range uint32(1) << len(p.Pods) {
		chosen := make([]int, 0, bits.OnesCount32(set))
		forced := true
		for i, pod := range p.Pods {
			if set>>i&1 == 1 {
				chosen = append(chosen, i)
			} else if pod.Forced {
				forced = false
			}
		}
		if !forced || !r.covers(chosen) {
			continue
		}
		if !found || highest(chosen) < highest(best) || highest(chosen) == highest(best) && r.compare(chosen, best) < 0 {
			best, found = chosen, true
		}
	}
	return best, found
}

func TestBruteForceAgrees(t *testing.T) {
	t.Parallel()
	rounds := 6000
	if testing.Short() {
		rounds = 300
	}
	for _, m := range []mix{
		{name: "fine", classes: 3, rows: 2, share: 60},
		{name: "fine, one class", classes: 1, rows: 2, share: 60},
		{name: "coarse", classes: 3, rows: 3, share: 60, coarse: true},
		{name: "coarse, one class", classes: 1, rows: 2, share: 90, coarse: true},
		{name: "one row", classes: 1, rows: 1, share: 60},
		{name: "tiers", classes: 3, rows: 2, share: 40, tiers: 3, coarse: true},
		{name: "hard", classes: 3, rows: 3, share: 110},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			for n := range rounds {
				m.pods = 1 + n%10
				if n%50 == 0 {
					m.pods = 14
				}
				p := m.random(rng)
				for i := range p.Pods {
					p.Pods[i].Forced = rng.IntN(12) == 0
				}
				want, ok := brute(p)
				got, found := Solve(p)
				if ok != found {
					t.Fatalf("round %d: solvable %v, found %v: %s", n, ok, found, spell(p))
				}
				if ok && (!slices.Equal(got.Victims, want) && len(got.Victims)+len(want) > 0 || !got.Optimal) {
					t.Fatalf("round %d: got %+v, want %v: %s", n, got, want, spell(p))
				}
			}
		})
	}
}

// spell writes a problem down to be looked into.
func spell(p Problem) string {
	s := fmt.Sprintf("need %v\n", p.Need)
	for i, pod := range p.Pods {
		s += fmt.Sprintf("%d: %+v\n", i, pod)
	}
	return s
}
