package mirror_test

import (
	"fmt"
	"testing"

	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/serve/mirror"
)

// BenchmarkSync: what a client's request costs on a machine with 300 pods, each with events.
func BenchmarkSync(b *testing.B) {
	n := newMachine(b)
	p := n.process(b)
	for i := range 300 {
		pod := newPod(fmt.Sprintf("web-%d", i), "sleep")
		_, err := p.records.Update(pod.UID, func(r *record.Pod) error { r.Start(pod); return nil })
		must(b, err)
		happens(b, n.logs(), pod, "BackOff", "wait")
	}
	m, _ := run(b, n)
	must(b, m.Sync(b.Context()))
	all, _, err := m.Store().List(mirror.Pods, 0)
	must(b, err)
	want(b, "pods", len(all), 300)
	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must(b, m.Sync(b.Context()))
		}
	})
	b.Run("changed", func(b *testing.B) {
		b.ReportAllocs()
		for ready := false; b.Loop(); ready = !ready {
			b.StopTimer()
			_, err := p.records.Update("uid-web-7", func(r *record.Pod) error { r.Ready = ready; return nil })
			must(b, err)
			b.StartTimer()
			must(b, m.Sync(b.Context()))
		}
	})
	b.Run("all observed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Mark("")
			must(b, m.Sync(b.Context()))
		}
	})
}
