package admit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// sized returns a pod with random requests, of a random class unless there is only one.
func sized(rng *rand.Rand, name string, priority int32, oneClass bool) *v1.Pod {
	p := pod(name, priority, "")
	class := rng.IntN(3)
	if oneClass {
		class = 1
	}
	if class == 0 {
		return p
	}
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(10+rng.Int64N(991), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity((16+rng.Int64N(1009))<<20, resource.BinarySI),
	}
	if class == 2 {
		limits(p)
	}
	return p
}

// BenchmarkDecide decides on many pods, half of which fit. Its cost should grow
// with their number alone.
func BenchmarkDecide(b *testing.B) {
	for _, pods := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			input := make([]*v1.Pod, 0, pods)
			for i := range pods {
				input = append(input, sized(rng, fmt.Sprint("p", i), rng.Int32N(1000), false))
			}
			n := node(fmt.Sprintf("cpu=%d,memory=1Ti,pods=%d", pods/6, pods))
			for b.Loop() {
				Decide(n, nil, input, Options{})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pods), "ns/pod")
		})
	}
}

// BenchmarkPreempt decides on one critical pod on a full node, and reports the median and
// the worst time and the share of plans that are proven. With -benchtime=1000x there are
// 1,000 of each kind.
func BenchmarkPreempt(b *testing.B) {
	for _, pods := range []int{30, 110, 250} {
		for _, kind := range []string{"mixed", "one"} {
			b.Run(fmt.Sprintf("%d/%s", pods, kind), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(2, 2))
				var times []time.Duration
				proven := 0
				for b.Loop() {
					running := make([]*v1.Pod, 0, pods)
					for i := range pods {
						running = append(running, sized(rng, fmt.Sprint("r", i), 0, kind == "one"))
					}
					n := node("pods=300")
					n.Status.Allocatable = Decide(n, running, nil, Options{}).Used
					n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("300")
					asks := pod("asks", SystemCritical, fmt.Sprintf("cpu=%dm,memory=%dMi", 100+rng.IntN(8000), 128+rng.IntN(8192)))
					start := time.Now()
					plan := Decide(n, running, []*v1.Pod{asks}, Options{})
					times = append(times, time.Since(start))
					if plan.Optimal {
						proven++
					}
				}
				slices.Sort(times)
				ms := func(at int) float64 { return float64(times[at].Microseconds()) / 1000 }
				b.ReportMetric(ms(len(times)/2), "median-ms")
				b.ReportMetric(ms(len(times)-1), "worst-ms")
				b.ReportMetric(float64(proven)*100/float64(len(times)), "proven-%")
			})
		}
	}
}

// BenchmarkQueue decides on pods of which two fit at once, and on the next one whenever one has ended. Its
// cost should grow with their number alone.
func BenchmarkQueue(b *testing.B) {
	for _, pods := range []int{500, 1_000, 2_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			input := make([]*v1.Pod, 0, pods)
			for i := range pods {
				p := sized(rng, fmt.Sprint("p", i), 0, true)
				p.Spec.RestartPolicy = v1.RestartPolicyNever
				input = append(input, p)
			}
			n := node("cpu=2,memory=4Gi")
			for b.Loop() {
				q := Decide(n, nil, input, Options{Queue: true}).Queue
				for _, p := range input {
					q.Add(p)
				}
				var running []*v1.Pod
				for {
					start, _, _ := q.Next()
					if running = append(running, start...); len(running) == 0 {
						break
					}
					q.Remove(running[0])
					running = running[1:]
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pods), "ns/pod")
		})
	}
}
