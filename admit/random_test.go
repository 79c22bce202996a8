package admit

import (
	"math/rand/v2"
)

// mix says what kind of pods a random problem has.
type mix struct {
	name    string
	pods    int
	classes int   // 3 for all, 1 for burstable alone
	rows    int   // of memory, cpu and pods in this order, that are short
	coarse  bool  // few distinct sizes, as manifests have them
	share   int   // of all that can be freed, at most so many hundredths are needed
	tiers   int32 // distinct priorities
}

const mebi = 1 << 20

// random returns a problem that can be solved.
func (m mix) random(rng *rand.Rand) shortage {
	p := shortage{}
	total := make([]int64, max(m.rows, 2))
	for range m.pods {
		pod := potentialVictim{class: burstable, priority: rng.Int32N(max(m.tiers, 1))}
		if m.classes == 3 {
			pod.class = qosClass(rng.IntN(3))
		}
		pod.requests = []int64{0, 0, 1}[:len(total)]
		if pod.class != bestEffort {
			pod.requests[memory] = (16 + rng.Int64N(1009)) * mebi
			pod.requests[cpu] = 10 + rng.Int64N(991)
			if m.coarse {
				pod.requests[memory] = 64 * mebi << rng.IntN(6)
				pod.requests[cpu] = 50 * (1 + rng.Int64N(8))
			}
		}
		for j := range total {
			total[j] += pod.requests[j]
		}
		p.pods = append(p.pods, pod)
	}
	for j := range total {
		p.need = append(p.need, total[j]*(1+rng.Int64N(int64(m.share)))/100)
	}
	if m.rows > 2 {
		p.need[2] = 1 + rng.Int64N(3)
	}
	clear(p.need[min(m.rows, 2):2])
	return p
}
