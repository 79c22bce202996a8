package admit

import (
	"math"
	"slices"
)

// greedy returns the kubelet's choice among candidates that free enough: the guaranteed pods
// that are needed even if all others are preempted, then the burstable ones needed in
// addition to them and to all bestEffort ones, then the bestEffort ones needed in addition to
// both (pkg/kubelet/preemption, getPodsToPreempt).
func (p shortage) greedy(candidates []int) []int {
	var chosen []int
	for class := guaranteed; class >= bestEffort; class-- {
		need := p.left(chosen)
		var of []int
		for _, i := range candidates {
			switch c := p.pods[i].class; {
			case c < class:
				reduce(need, p.pods[i].requests)
			case c == class:
				of = append(of, i)
			}
		}
		chosen = append(chosen, p.nearest(of, need)...)
	}
	return chosen
}

// nearest chooses, until the need is met, the pod that leaves the least of it; of two that
// leave the same, the one that requests less memory, then less cpu, then the later one
// (getPodsToPreemptByDistance).
func (p shortage) nearest(pods []int, need []int64) []int {
	var chosen []int
	for !met(need) && len(pods) > 0 {
		best, least := 0, math.Inf(1)
		for k, i := range pods {
			d := distance(need, p.pods[i].requests)
			if d < least || d == least && slices.Compare(p.pods[i].requests[:2], p.pods[pods[best]].requests[:2]) <= 0 {
				best, least = k, d
			}
		}
		reduce(need, p.pods[pods[best]].requests)
		chosen = append(chosen, pods[best])
		pods[best] = pods[len(pods)-1]
		pods = pods[:len(pods)-1]
	}
	return chosen
}

// distance is what is left of each need, as the sum of the squares of its shares.
func distance(need, requests []int64) float64 {
	sum := 0.0
	for j, n := range need {
		if left := float64(n - min(n, requests[j])); left > 0 {
			sum += (left / float64(n)) * (left / float64(n))
		}
	}
	return sum
}
