package preempt

import (
	"math"
	"slices"
)

// Greedy returns the victims that the kubelet would choose of the pods, ignoring their
// priorities (pkg/kubelet/preemption.getPodsToPreempt), or false when all of them do not
// free enough. Forced pods are not treated apart.
func Greedy(p Problem) ([]int, bool) {
	r := p.reduced(p.Need, math.MaxInt32)
	chosen, ok := r.greedy()
	if !ok {
		return nil, false
	}
	victims := make([]int, 0, len(chosen))
	for _, i := range chosen {
		victims = append(victims, r.items[i].index)
	}
	slices.Sort(victims)
	return victims, true
}

// greedy returns the kubelet's choice: the Guaranteed pods that are needed even if all
// others went, then the Burstable ones needed beside them and all BestEffort ones, then
// the BestEffort ones needed beside both.
func (r *reduced) greedy() ([]int, bool) {
	var classes [Guaranteed + 1][]int
	for i := range r.items {
		c := r.items[i].class
		classes[c] = append(classes[c], i)
	}
	var chosen []int
	for class := Guaranteed; class >= BestEffort; class-- {
		need := slices.Clone(r.need)
		for _, i := range chosen {
			reduce(need, r.items[i].frees)
		}
		for lower := BestEffort; lower < class; lower++ {
			for _, i := range classes[lower] {
				reduce(need, r.items[i].frees)
			}
		}
		more, ok := r.nearest(classes[class], need)
		if !ok {
			return nil, false
		}
		chosen = append(chosen, more...)
	}
	return chosen, true
}

// nearest takes, until the need is met, the pod that leaves the least of it; of two that
// leave the same, the one that requests less memory, then less cpu, then the later one.
func (r *reduced) nearest(pods []int, need []int64) ([]int, bool) {
	need = slices.Clone(need)
	pods = slices.Clone(pods)
	var chosen []int
	for !met(need) {
		if len(pods) == 0 {
			return nil, false
		}
		best, least := 0, math.Inf(1)
		for k, i := range pods {
			d := distance(need, r.items[i].frees)
			if d < least || d == least && r.smaller(i, pods[best]) {
				best, least = k, d
			}
		}
		reduce(need, r.items[pods[best]].frees)
		chosen = append(chosen, pods[best])
		pods[best] = pods[len(pods)-1]
		pods = pods[:len(pods)-1]
	}
	return chosen, true
}

// distance is what is left of each need, as the sum of the squares of its shares.
func distance(need, frees []int64) float64 {
	sum := 0.0
	for j, n := range need {
		if left := float64(n - frees[j]); left > 0 {
			sum += (left / float64(n)) * (left / float64(n))
		}
	}
	return sum
}

// smaller says whether the first pod requests no more than the second.
func (r *reduced) smaller(i, k int) bool {
	a, b := &r.items[i], &r.items[k]
	if a.memory != b.memory {
		return a.memory < b.memory
	}
	return a.cpu <= b.cpu
}
