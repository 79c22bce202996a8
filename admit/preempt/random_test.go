package preempt

import (
	"math/rand/v2"
)

// mix says what kind of pods a random problem has.
type mix struct {
	name    string
	pods    int
	classes int   // 3 for all, 1 for Burstable alone
	rows    int   // of memory, cpu and pods in this order
	coarse  bool  // few distinct sizes, as manifests have them
	share   int   // of all that can be freed, at most so many hundredths are needed
	tiers   int32 // distinct priorities
}

const mebi = 1 << 20

// random returns a problem that can be solved.
func (m mix) random(rng *rand.Rand) Problem {
	p := Problem{}
	total := make([]int64, m.rows)
	for range m.pods {
		pod := Pod{Class: Burstable, Priority: rng.Int32N(max(m.tiers, 1))}
		if m.classes == 3 {
			pod.Class = Class(rng.IntN(3))
		}
		if pod.Class != BestEffort {
			pod.Memory = (16 + rng.Int64N(1009)) * mebi
			pod.CPU = 10 + rng.Int64N(991)
			if m.coarse {
				pod.Memory = 64 * mebi << rng.IntN(6)
				pod.CPU = 50 * (1 + rng.Int64N(8))
			}
		}
		pod.Frees = []int64{pod.Memory, pod.CPU, 1}[:m.rows]
		for j := range total {
			total[j] += pod.Frees[j]
		}
		p.Pods = append(p.Pods, pod)
	}
	for j := range total {
		p.Need = append(p.Need, total[j]*(1+rng.Int64N(int64(m.share)))/100)
	}
	if m.rows > 2 {
		p.Need[2] = 1 + rng.Int64N(3)
	}
	return p
}
