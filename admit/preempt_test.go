package admit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSolve(t *testing.T) {
	t.Parallel()
	one := func(n int64) potentialVictim { return potentialVictim{class: burstable, requests: []int64{0, n}} }
	two := func(class qosClass, a, b int64) potentialVictim {
		return potentialVictim{class: class, requests: []int64{b, a}}
	}
	// of requests neither memory nor cpu, but a third resource.
	of := func(class qosClass, priority int32, n int64) potentialVictim {
		return potentialVictim{class: class, priority: priority, requests: []int64{0, 0, n}}
	}
	forced := func(pod potentialVictim) potentialVictim {
		pod.forced = true
		return pod
	}
	tests := []struct {
		name string
		in   shortage
		want []int
		none bool
	}{
		{name: "nothing is needed", in: shortage{need: []int64{0, 0}, pods: []potentialVictim{one(0)}}},
		{name: "nothing is there", in: shortage{need: []int64{0, 1}}, none: true},
		{name: "not enough", in: shortage{need: []int64{0, 3}, pods: []potentialVictim{one(1), one(1)}}, none: true},
		{name: "one that is enough", in: shortage{need: []int64{0, 3}, pods: []potentialVictim{one(2), one(4), one(3), one(2)}}, want: []int{2}},
		{name: "the latest of two alike", in: shortage{need: []int64{0, 3}, pods: []potentialVictim{one(3), one(3), one(2)}}, want: []int{1}},
		{name: "two where the greedy choice has three", in: shortage{need: []int64{10, 10}, pods: []potentialVictim{two(burstable, 7, 7), two(burstable, 10, 0), two(burstable, 0, 10)}}, want: []int{1, 2}},
		{name: "several of a lower class", in: shortage{need: []int64{0, 10}, pods: []potentialVictim{two(guaranteed, 10, 0), two(burstable, 5, 0), two(bestEffort, 5, 0)}}, want: []int{1, 2}},
		{name: "no more burstable than needed with the fewest Guaranteed", in: shortage{need: []int64{0, 0, 4}, pods: []potentialVictim{
			of(guaranteed, 0, 2), of(guaranteed, 0, 3), of(burstable, 0, 1), of(burstable, 0, 1),
		}}, want: []int{1, 3}},
		{name: "the lowest priority whatever the class", in: shortage{need: []int64{0, 0, 1}, pods: []potentialVictim{of(bestEffort, 1, 1), of(guaranteed, 0, 1)}}, want: []int{1}},
		{name: "any below the highest that is needed", in: shortage{need: []int64{0, 0, 3}, pods: []potentialVictim{
			of(burstable, 1, 3), of(burstable, 0, 1), of(burstable, 9, 3),
		}}, want: []int{0}},
		{name: "forced", in: shortage{need: []int64{0, 3}, pods: []potentialVictim{forced(two(bestEffort, 2, 0)), one(1), one(3)}}, want: []int{0, 1}},
		{name: "forced and enough", in: shortage{need: []int64{0, 2}, pods: []potentialVictim{forced(two(bestEffort, 2, 0)), one(1), one(3)}}, want: []int{0}},
		{name: "forced with nothing short", in: shortage{need: []int64{0, 0}, pods: []potentialVictim{forced(one(0)), one(0)}}, want: []int{0}},
		{name: "a forced one's priority is spent already", in: shortage{need: []int64{0, 0, 2}, pods: []potentialVictim{
			forced(of(bestEffort, 5, 0)), of(burstable, 5, 2), of(burstable, 0, 1), of(burstable, 0, 1),
		}}, want: []int{0, 1}},
		{name: "amounts that cannot be summed", in: shortage{need: []int64{math.MaxInt64, 0}, pods: []potentialVictim{
			two(bestEffort, 0, math.MaxInt64), two(bestEffort, 0, math.MaxInt64), two(bestEffort, 0, 1),
		}}, want: []int{1}},
		{name: "amounts too large to be told apart", in: shortage{need: []int64{1 << 60, 0}, pods: []potentialVictim{
			two(bestEffort, 3, 1<<60+1), two(bestEffort, 5, 1<<60),
		}}, want: []int{0}},
		{name: "cpu too large to be told apart", in: shortage{need: []int64{0, 1 << 60}, pods: []potentialVictim{
			two(bestEffort, 1<<60, 0), two(bestEffort, 1<<60+1, 0),
		}}, want: []int{1}},
		{name: "an amount that is next to nothing", in: shortage{need: []int64{1 << 48, 0}, pods: []potentialVictim{
			two(burstable, 1, 1<<48-1), two(bestEffort, 0, 1), two(guaranteed, 0, 1<<48), two(burstable, 0, 1<<48-1),
		}}, want: []int{1, 3}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := solve(test.in)
			if ok == test.none {
				t.Fatalf("found %v", ok)
			}
			if !slices.Equal(got.victims, test.want) || ok && !got.optimal {
				t.Errorf("got %+v, want %v", got, test.want)
			}
		})
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	m := mix{pods: 110, classes: 1, rows: 2, share: 30}
	rng := rand.New(rand.NewPCG(5, 6))
	cut := 0
	for range 50 {
		p := m.random(rng)
		p.budget = 200
		got, ok := solve(p)
		if !ok {
			t.Fatal("no victims")
		}
		if got.steps > 2*p.budget {
			t.Errorf("%d steps with a budget of %d", got.steps, p.budget)
		}
		if wrong := errorOf(p, got); wrong != "" {
			t.Fatal(wrong)
		}
		if !got.optimal {
			cut++
		}
	}
	if cut == 0 {
		t.Error("a budget of 200 steps was enough for everything")
	}
}

// TestSolveProperties: no solution is worse than the kubelet's choice or has a victim that is
// not needed, for problems too large to compare with all sets and whether the search ends or not.
func TestSolveProperties(t *testing.T) {
	t.Parallel()
	rounds := 8_000
	if testing.Short() {
		rounds = 3_000
	}
	rng := rand.New(rand.NewPCG(9, 10))
	cut := 0
	for n := range rounds {
		m := mix{pods: 1 + rng.IntN(200), classes: 1 + 2*rng.IntN(2), rows: 1 + rng.IntN(3), coarse: rng.IntN(2) == 0, share: 5 + rng.IntN(60), tiers: rng.Int32N(4)}
		p := m.random(rng)
		p.budget = []int{1, 20, 400, 8000}[rng.IntN(4)]
		for i := range p.pods {
			p.pods[i].forced = n%3 == 0 && rng.IntN(30) == 0
		}
		got, ok := solve(p)
		if !ok {
			continue
		}
		if wrong := errorOf(p, got); wrong != "" {
			t.Fatalf("round %d: %s: %s", n, wrong, spell(p))
		}
		if !got.optimal {
			cut++
		}
	}
	if cut < rounds/10 {
		t.Errorf("the budget ended %d of %d searches", cut, rounds)
	}
}

// TestKubeletsChoiceWithinLimit: where the kubelet's choice among all pods has the lowest
// highest priority that there can be, the search starts from it, and not from the choice
// among the pods up to that priority, which may be worse.
func TestKubeletsChoiceWithinLimit(t *testing.T) {
	t.Parallel()
	p := shortage{need: []int64{2512555868, 676}, budget: 1, pods: []potentialVictim{
		{priority: 3, class: guaranteed, requests: []int64{1073741824, 300}},
		{priority: 1, class: burstable, requests: []int64{2147483648, 250}},
		{priority: 1, class: burstable, requests: []int64{268435456, 250}},
		{priority: 0, class: burstable, requests: []int64{536870912, 400}},
		{priority: 0, class: burstable, requests: []int64{268435456, 250}},
		{priority: 2, class: burstable, requests: []int64{2147483648, 200}},
	}}
	got, _ := solve(p)
	if wrong := errorOf(p, got); wrong != "" || got.optimal {
		t.Errorf("%+v: %s", got, wrong)
	}
}

func FuzzSolve(f *testing.F) {
	f.Add(uint64(1), uint64(2), 5, int64(10), int64(0))
	f.Add(uint64(3), uint64(4), 12, int64(math.MaxInt64), int64(1<<40))
	f.Fuzz(func(t *testing.T, a, b uint64, pods int, first, second int64) {
		if pods < 0 || pods > 30 || first < 0 || second < 0 {
			return
		}
		m := mix{pods: pods, classes: 3, rows: 2, coarse: a%2 == 0, share: 50, tiers: 3}
		p := m.random(rand.New(rand.NewPCG(a, b)))
		p.need, p.budget = []int64{first, second}, 2000
		if got, ok := solve(p); ok {
			if wrong := errorOf(p, got); wrong != "" {
				t.Fatalf("%s: %s", wrong, spell(p))
			}
		}
	})
}

// errorOf says what is wrong with a solution, proven or not.
func errorOf(p shortage, got solution) string {
	if !frees(p, got.victims, p.need) {
		return "the victims do not free enough"
	}
	for k, i := range got.victims {
		if !p.pods[i].forced && frees(p, slices.Delete(slices.Clone(got.victims), k, k+1), p.need) {
			return "a victim is not needed"
		}
	}
	limit := lowest(p)
	var forced, others []int
	for i, pod := range p.pods {
		if pod.forced {
			forced = append(forced, i)
		} else {
			others = append(others, i)
		}
		if slices.Contains(got.victims, i) && pod.priority > limit {
			return "a victim's priority is higher than it has to be"
		}
		if pod.forced && !slices.Contains(got.victims, i) {
			return "a forced pod stays"
		}
	}
	left := shortage{need: slices.Clone(p.need), pods: p.pods}
	for _, i := range forced {
		reduce(left.need, p.pods[i].requests)
	}
	greedy := left.greedy(others)
	if !frees(left, greedy, left.need) {
		return "the kubelet's choice does not free enough"
	}
	greedy = append(left.irreducible(greedy), forced...)
	slices.Sort(greedy)
	theirs, ours := costSum(p, greedy), costSum(p, got.victims)
	if theirs.better(ours) || !ours.better(theirs) && latestFirst(greedy, got.victims) < 0 {
		return "the kubelet's choice is better"
	}
	if again, _ := solve(p); !slices.Equal(again.victims, got.victims) || again.optimal != got.optimal {
		return "another answer the second time"
	}
	return ""
}

// lowest returns the lowest priority up to which the pods, and the forced ones, free enough.
func lowest(p shortage) int32 {
	limit := int32(math.MaxInt32)
	for _, top := range p.pods {
		var upTo []int
		highest := top.priority
		for i, pod := range p.pods {
			if pod.forced {
				highest = max(highest, pod.priority)
			}
			if pod.forced || pod.priority <= top.priority {
				upTo = append(upTo, i)
			}
		}
		if frees(p, upTo, p.need) {
			limit = min(limit, highest)
		}
	}
	return limit
}

// frees says whether the pods free all that is needed.
func frees(p shortage, victims []int, need []int64) bool {
	need = slices.Clone(need)
	for _, i := range victims {
		reduce(need, p.pods[i].requests)
	}
	return met(need)
}

// costSum returns what the pods cost; not which they are, since they may be too many.
func costSum(p shortage, victims []int) subset {
	s := subset{priority: -1 << 40}
	for _, i := range victims {
		s = s.with(0, &p.pods[i])
	}
	s.pods = 0
	return s
}

// latestFirst compares ascending sets by their last pods.
func latestFirst(a, b []int) int {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Reverse(a)
	slices.Reverse(b)
	return slices.Compare(b, a)
}

// TestGreedyIsTheKubelets tests the greedy choice in a case where the kubelet's choice is known
// not to be the smallest.
func TestGreedyIsTheKubelets(t *testing.T) {
	t.Parallel()
	p := shortage{need: []int64{10, 10}, pods: []potentialVictim{
		{class: burstable, requests: []int64{7, 7}},
		{class: burstable, requests: []int64{0, 10}},
		{class: burstable, requests: []int64{10, 0}},
	}}
	if got := p.greedy([]int{0, 1, 2}); !slices.Equal(slices.Sorted(slices.Values(got)), []int{0, 1, 2}) {
		t.Errorf("got %v, want all three", got)
	}
}
