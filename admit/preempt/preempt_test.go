package preempt

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSolve(t *testing.T) {
	t.Parallel()
	one := func(n int64) Pod { return Pod{Class: Burstable, Frees: []int64{n}, CPU: n} }
	two := func(class Class, a, b int64) Pod { return Pod{Class: class, Frees: []int64{a, b}, CPU: a, Memory: b} }
	tests := []struct {
		name string
		in   Problem
		want []int
		none bool
	}{
		{name: "nothing is needed", in: Problem{Pods: []Pod{{}}}},
		{name: "nothing is there", in: Problem{Need: []int64{1}}, none: true},
		{name: "not enough", in: Problem{Need: []int64{3}, Pods: []Pod{one(1), one(1)}}, none: true},
		{name: "one that is enough", in: Problem{Need: []int64{3}, Pods: []Pod{one(2), one(4), one(3), one(2)}}, want: []int{2}},
		{name: "the latest of two alike", in: Problem{Need: []int64{3}, Pods: []Pod{one(3), one(3), one(2)}}, want: []int{1}},
		{name: "two where greed takes three", in: Problem{Need: []int64{10, 10}, Pods: []Pod{two(Burstable, 7, 7), two(Burstable, 10, 0), two(Burstable, 0, 10)}}, want: []int{1, 2}},
		{name: "several of a lower class", in: Problem{Need: []int64{10, 0}, Pods: []Pod{two(Guaranteed, 10, 0), two(Burstable, 5, 0), two(BestEffort, 5, 0)}}, want: []int{1, 2}},
		{name: "no more Burstable than needed beside the fewest Guaranteed", in: Problem{Need: []int64{4}, Pods: []Pod{
			{Class: Guaranteed, Frees: []int64{2}}, {Class: Guaranteed, Frees: []int64{3}}, {Class: Burstable, Frees: []int64{1}}, {Class: Burstable, Frees: []int64{1}},
		}}, want: []int{1, 3}},
		{name: "the lowest priority whatever the class", in: Problem{Need: []int64{1}, Pods: []Pod{
			{Class: BestEffort, Priority: 1, Frees: []int64{1}}, {Class: Guaranteed, Priority: 0, Frees: []int64{1}},
		}}, want: []int{1}},
		{name: "any below the highest that is needed", in: Problem{Need: []int64{3}, Pods: []Pod{
			{Class: Burstable, Priority: 1, Frees: []int64{3}}, {Class: Burstable, Priority: 0, Frees: []int64{1}}, {Class: Burstable, Priority: 9, Frees: []int64{3}},
		}}, want: []int{0}},
		{name: "forced", in: Problem{Need: []int64{3}, Pods: []Pod{{Frees: []int64{2}, Forced: true}, one(1), one(3)}}, want: []int{0, 1}},
		{name: "forced and enough", in: Problem{Need: []int64{2}, Pods: []Pod{{Frees: []int64{2}, Forced: true}, one(1), one(3)}}, want: []int{0}},
		{name: "forced with nothing short", in: Problem{Pods: []Pod{{Forced: true}, {}}}, want: []int{0}},
		{name: "a forced one's priority is spent already", in: Problem{Need: []int64{2}, Pods: []Pod{
			{Priority: 5, Frees: []int64{0}, Forced: true}, {Class: Burstable, Priority: 5, Frees: []int64{2}}, {Class: Burstable, Frees: []int64{1}}, {Class: Burstable, Frees: []int64{1}},
		}}, want: []int{0, 1}},
		{name: "amounts that cannot be summed", in: Problem{Need: []int64{math.MaxInt64}, Pods: []Pod{
			{Frees: []int64{math.MaxInt64}, Memory: math.MaxInt64}, {Frees: []int64{math.MaxInt64}, Memory: math.MaxInt64}, {Frees: []int64{1}},
		}}, want: []int{1}},
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
		if got.Nodes > 4*p.Budget {
			t.Errorf("%d nodes with a budget of %d", got.Nodes, p.Budget)
		}
		if fault := faultOf(p, got); fault != "" {
			t.Fatal(fault)
		}
		if !got.Optimal {
			cut++
		}
	}
	if cut == 0 {
		t.Error("a budget of 200 nodes was enough for everything")
	}
}

func TestSolveProperties(t *testing.T) {
	t.Parallel()
	rounds := 18_000
	if testing.Short() {
		rounds = 500
	}
	rng := rand.New(rand.NewPCG(9, 10))
	for n := range rounds {
		m := mix{pods: 1 + rng.IntN(40), classes: 1 + 2*rng.IntN(2), rows: 1 + rng.IntN(3), coarse: rng.IntN(2) == 0, share: 5 + rng.IntN(60), tiers: rng.Int32N(4)}
		p := m.random(rng)
		p.Budget = 5000
		if got, ok := Solve(p); ok {
			if fault := faultOf(p, got); fault != "" {
				t.Fatalf("round %d: %s: %s", n, fault, spell(p))
			}
		}
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
			if fault := faultOf(p, got); fault != "" {
				t.Fatalf("%s: %s", fault, spell(p))
			}
		}
	})
}

// faultOf says what is wrong with an answer, proven or not.
func faultOf(p Problem, got Answer) string {
	need := slices.Clone(p.Need)
	for _, i := range got.Victims {
		reduce(need, p.Pods[i].Frees)
	}
	if !met(need) {
		return "the victims do not free enough"
	}
	r := &reduced{need: p.Need}
	for i, pod := range p.Pods {
		r.items = append(r.items, item{index: i, class: pod.Class, frees: pod.Frees, memory: min(pod.Memory, mostCounted), cpu: min(pod.CPU, mostCounted)})
	}
	for k := range got.Victims {
		if r.covers(slices.Delete(slices.Clone(got.Victims), k, k+1)) {
			return "a victim is not needed"
		}
	}
	limit, _ := p.priorityLimit()
	for _, i := range got.Victims {
		if p.Pods[i].Priority > limit {
			return "a victim's priority is higher than it has to be"
		}
	}
	greedy, ok := Greedy(p)
	if !ok {
		return "the kubelet would find no victims"
	}
	highest := func(victims []int) (top int32) {
		for _, i := range victims {
			top = max(top, p.Pods[i].Priority)
		}
		return top
	}
	if highest(greedy) == highest(got.Victims) && r.compare(greedy, got.Victims) < 0 || highest(greedy) < highest(got.Victims) {
		return "the kubelet's choice is better"
	}
	return ""
}

// TestGreedyIsTheKubelets holds the seed to a case where the kubelet's choice is known
// not to be the smallest.
func TestGreedyIsTheKubelets(t *testing.T) {
	t.Parallel()
	p := Problem{Need: []int64{10, 10}, Pods: []Pod{
		{Class: Burstable, Frees: []int64{7, 7}, CPU: 7, Memory: 7},
		{Class: Burstable, Frees: []int64{10, 0}, CPU: 10},
		{Class: Burstable, Frees: []int64{0, 10}, Memory: 10},
	}}
	if got, ok := Greedy(p); !ok || !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("got %v, want all three", got)
	}
}
