package admit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkSolve reports the median and the worst time of random problems, and the share
// of them whose solution is proven to be optimal. With -benchtime=1000x there are 1,000 of each kind.
func BenchmarkSolve(b *testing.B) {
	for _, pods := range []int{30, 110, 250} {
		for _, m := range []mix{
			{name: "mixed", classes: 3, share: 5},
			{name: "mixed", classes: 3, share: 30},
			{name: "one", classes: 1, share: 5},
			{name: "one", classes: 1, share: 30},
			{name: "mixed-coarse", classes: 3, share: 30, coarse: true},
			{name: "one-coarse", classes: 1, share: 30, coarse: true},
		} {
			m.pods, m.rows = pods, 2
			b.Run(fmt.Sprintf("%d/%s/%d", pods, m.name, m.share), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(3, 4))
				var times []time.Duration
				proven := 0
				for b.Loop() {
					p := m.random(rng)
					start := time.Now()
					answer, _ := solve(p)
					times = append(times, time.Since(start))
					if answer.optimal {
						proven++
					}
				}
				slices.Sort(times)
				ms := func(at int) float64 { return float64(times[at].Microseconds()) / 1000 }
				b.ReportMetric(ms(len(times)/2), "median-ms")
				b.ReportMetric(ms(len(times)*99/100), "p99-ms")
				b.ReportMetric(ms(len(times)-1), "worst-ms")
				b.ReportMetric(float64(proven)*100/float64(len(times)), "proven-%")
			})
		}
	}
}
