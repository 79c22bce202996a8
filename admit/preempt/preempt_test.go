package preempt

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSolve(t *testing.T) {
	t.Parallel()
	one := func(n int64) Pod { return Pod{Class: Burstable, Requests: []int64{0, n}} }
	two := func(class Class, a, b int64) Pod { return Pod{Class: class, Requests: []int64{b, a}} }
	// of requests neither memory nor cpu, but a third resource.
	of := func(class Class, priority int32, n int64) Pod {
		return Pod{Class: class, Priority: priority, Requests: []int64{0, 0, n}}
	}
	forced := func(pod Pod) Pod {
		pod.Forced = true
		return pod
	}
	tests := []struct {
		name string
		in   Problem
		want []int
		none bool
	}{
		{name: "nothing is needed", in: Problem{Need: []int64{0, 0}, Pods: []Pod{one(0)}}},
		{name: "nothing is there", in: Problem{Need: []int64{0, 1}}, none: true},
		{name: "not enough", in: Problem{Need: []int64{0, 3}, Pods: []Pod{one(1), one(1)}}, none: true},
		{name: "one that is enough", in: Problem{Need: []int64{0, 3}, Pods: []Pod{one(2), one(4), one(3), one(2)}}, want: []int{2}},
		{name: "the latest of two alike", in: Problem{Need: []int64{0, 3}, Pods: []Pod{one(3), one(3), one(2)}}, want: []int{1}},
		{name: "two where the greedy choice has three", in: Problem{Need: []int64{10, 10}, Pods: []Pod{two(Burstable, 7, 7), two(Burstable, 10, 0), two(Burstable, 0, 10)}}, want: []int{1, 2}},
		{name: "several of a lower class", in: Problem{Need: []int64{0, 10}, Pods: []Pod{two(Guaranteed, 10, 0), two(Burstable, 5, 0), two(BestEffort, 5, 0)}}, want: []int{1, 2}},
		{name: "no more Burstable than needed with the fewest Guaranteed", in: Problem{Need: []int64{0, 0, 4}, Pods: []Pod{
			of(Guaranteed, 0, 2), of(Guaranteed, 0, 3), of(Burstable, 0, 1), of(Burstable, 0, 1),
		}}, want: []int{1, 3}},
		{name: "the lowest priority whatever the class", in: Problem{Need: []int64{0, 0, 1}, Pods: []Pod{of(BestEffort, 1, 1), of(Guaranteed, 0, 1)}}, want: []int{1}},
		{name: "any below the highest that is needed", in: Problem{Need: []int64{0, 0, 3}, Pods: []Pod{
			of(Burstable, 1, 3), of(Burstable, 0, 1), of(Burstable, 9, 3),
		}}, want: []int{0}},
		{name: "forced", in: Problem{Need: []int64{0, 3}, Pods: []Pod{forced(two(BestEffort, 2, 0)), one(1), one(3)}}, want: []int{0, 1}},
		{name: "forced and enough", in: Problem{Need: []int64{0, 2}, Pods: []Pod{forced(two(BestEffort, 2, 0)), one(1), one(3)}}, want: []int{0}},
		{name: "forced with nothing short", in: Problem{Need: []int64{0, 0}, Pods: []Pod{forced(one(0)), one(0)}}, want: []int{0}},
		{name: "a forced one's priority is spent already", in: Problem{Need: []int64{0, 0, 2}, Pods: []Pod{
			forced(of(BestEffort, 5, 0)), of(Burstable, 5, 2), of(Burstable, 0, 1), of(Burstable, 0, 1),
		}}, want: []int{0, 1}},
		{name: "amounts that cannot be summed", in: Problem{Need: []int64{math.MaxInt64, 0}, Pods: []Pod{
			two(BestEffort, 0, math.MaxInt64), two(BestEffort, 0, math.MaxInt64), two(BestEffort, 0, 1),
		}}, want: []int{1}},
		{name: "amounts too large to be told apart", in: Problem{Need: []int64{1 << 60, 0}, Pods: []Pod{
			two(BestEffort, 3, 1<<60+1), two(BestEffort, 5, 1<<60),
		}}, want: []int{0}},
		{name: "cpu too large to be told apart", in: Problem{Need: []int64{0, 1 << 60}, Pods: []Pod{
			two(BestEffort, 1<<60, 0), two(BestEffort, 1<<60+1, 0),
		}}, want: []int{1}},
		{name: "an amount that is next to nothing", in: Problem{Need: []int64{1 << 48, 0}, Pods: []Pod{
			two(Burstable, 1, 1<<48-1), two(BestEffort, 0, 1), two(Guaranteed, 0, 1<<48), two(Burstable, 0, 1<<48-1),
		}}, want: []int{1, 3}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := Solve(test.in)
			if ok == test.none {
				t.Fatalf("found %v", ok)
			}
			if !slices.Equal(got.Victims, test.want) || ok && !got.Optimal {
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
		p.Budget = 200
		got, ok := Solve(p)
		if !ok {
			t.Fatal("no victims")
		}
		if got.Steps > 2*p.Budget {
			t.Errorf("%d steps with a budget of %d", got.Steps, p.Budget)
		}
		if wrong := errorOf(p, got); wrong != "" {
			t.Fatal(wrong)
		}
		if !got.Optimal {
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
	rounds := 18_000
	if testing.Short() {
		rounds = 3_000
	}
	rng := rand.New(rand.NewPCG(9, 10))
	cut := 0
	for n := range rounds {
		m := mix{pods: 1 + rng.IntN(200), classes: 1 + 2*rng.IntN(2), rows: 1 + rng.IntN(3), coarse: rng.IntN(2) == 0, share: 5 + rng.IntN(60), tiers: rng.Int32N(4)}
		p := m.random(rng)
		p.Budget = []int{1, 20, 400, 8000}[rng.IntN(4)]
		for i := range p.Pods {
			p.Pods[i].Forced = n%3 == 0 && rng.IntN(30) == 0
		}
		got, ok := Solve(p)
		if !ok {
			continue
		}
		if wrong := errorOf(p, got); wrong != "" {
			t.Fatalf("round %d: %s: %s", n, wrong, spell(p))
		}
		if !got.Optimal {
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
	p := Problem{Need: []int64{2512555868, 676}, Budget: 1, Pods: []Pod{
		{Priority: 3, Class: Guaranteed, Requests: []int64{1073741824, 300}},
		{Priority: 1, Class: Burstable, Requests: []int64{2147483648, 250}},
		{Priority: 1, Class: Burstable, Requests: []int64{268435456, 250}},
		{Priority: 0, Class: Burstable, Requests: []int64{536870912, 400}},
		{Priority: 0, Class: Burstable, Requests: []int64{268435456, 250}},
		{Priority: 2, Class: Burstable, Requests: []int64{2147483648, 200}},
	}}
	got, _ := Solve(p)
	if wrong := errorOf(p, got); wrong != "" || got.Optimal {
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
		p.Need, p.Budget = []int64{first, second}, 2000
		if got, ok := Solve(p); ok {
			if wrong := errorOf(p, got); wrong != "" {
				t.Fatalf("%s: %s", wrong, spell(p))
			}
		}
	})
}

// errorOf says what is wrong with a solution, proven or not.
func errorOf(p Problem, got Solution) string {
	if !frees(p, got.Victims, p.Need) {
		return "the victims do not free enough"
	}
	for k, i := range got.Victims {
		if !p.Pods[i].Forced && frees(p, slices.Delete(slices.Clone(got.Victims), k, k+1), p.Need) {
			return "a victim is not needed"
		}
	}
	limit := lowest(p)
	var forced, others []int
	for i, pod := range p.Pods {
		if pod.Forced {
			forced = append(forced, i)
		} else {
			others = append(others, i)
		}
		if slices.Contains(got.Victims, i) && pod.Priority > limit {
			return "a victim's priority is higher than it has to be"
		}
		if pod.Forced && !slices.Contains(got.Victims, i) {
			return "a forced pod stays"
		}
	}
	left := Problem{Need: slices.Clone(p.Need), Pods: p.Pods}
	for _, i := range forced {
		reduce(left.Need, p.Pods[i].Requests)
	}
	greedy := left.greedy(others)
	if !frees(left, greedy, left.Need) {
		return "the kubelet's choice does not free enough"
	}
	greedy = append(left.irreducible(greedy), forced...)
	slices.Sort(greedy)
	theirs, ours := sum(p, greedy), sum(p, got.Victims)
	if theirs.better(ours) || !ours.better(theirs) && latestFirst(greedy, got.Victims) < 0 {
		return "the kubelet's choice is better"
	}
	if again, _ := Solve(p); !slices.Equal(again.Victims, got.Victims) || again.Optimal != got.Optimal {
		return "another answer the second time"
	}
	return ""
}

// lowest returns the lowest priority up to which the pods, and the forced ones, free enough.
func lowest(p Problem) int32 {
	limit := int32(math.MaxInt32)
	for _, top := range p.Pods {
		var upTo []int
		highest := top.Priority
		for i, pod := range p.Pods {
			if pod.Forced {
				highest = max(highest, pod.Priority)
			}
			if pod.Forced || pod.Priority <= top.Priority {
				upTo = append(upTo, i)
			}
		}
		if frees(p, upTo, p.Need) {
			limit = min(limit, highest)
		}
	}
	return limit
}

// frees says whether the pods free all that is needed.
func frees(p Problem, victims []int, need []int64) bool {
	need = slices.Clone(need)
	for _, i := range victims {
		reduce(need, p.Pods[i].Requests)
	}
	return met(need)
}

// sum returns what the pods cost; not which they are, since they may be too many.
func sum(p Problem, victims []int) subset {
	s := subset{priority: -1 << 40}
	for _, i := range victims {
		s = s.with(0, &p.Pods[i])
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
	p := Problem{Need: []int64{10, 10}, Pods: []Pod{
		{Class: Burstable, Requests: []int64{7, 7}},
		{Class: Burstable, Requests: []int64{0, 10}},
		{Class: Burstable, Requests: []int64{10, 0}},
	}}
	if got := p.greedy([]int{0, 1, 2}); !slices.Equal(slices.Sorted(slices.Values(got)), []int{0, 1, 2}) {
		t.Errorf("got %v, want all three", got)
	}
}
