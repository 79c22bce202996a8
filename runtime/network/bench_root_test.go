package network

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/record"
)

// BenchmarkPods makes and removes the sandboxes of 30 pods, four at a time.
func BenchmarkPods(b *testing.B) {
	roottest.Require(b)
	for _, bb := range []struct {
		name string
		edit func(*v1.Pod, int)
	}{
		{"bridge", func(*v1.Pod, int) {}},
		{"hostPort", func(p *v1.Pod, i int) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: int32(20000 + i)}}
		}},
		{"hostNetwork", func(p *v1.Pod, _ int) { p.Spec.HostNetwork = true }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			dir := b.TempDir()
			m := New(Options{Records: record.Open(dir, dir), StateDir: filepath.Join(dir, "s"), DataDir: filepath.Join(dir, "d"), CNIConfDir: filepath.Join(dir, "c")})
			pods := make([]*v1.Pod, 0, 30)
			for i := range 30 {
				pods = append(pods, newPod(fmt.Sprintf("p%d", i), func(p *v1.Pod) { bb.edit(p, i) }))
			}
			for b.Loop() {
				fourAtATime(b, pods, func(p *v1.Pod) error {
					_, err := holding(m).Ensure(b.Context(), p)
					return err
				})
				b.StopTimer()
				fourAtATime(b, pods, func(p *v1.Pod) error { return holding(m).Remove(b.Context(), p) })
				b.StartTimer()
			}
			if err := m.Cleanup(context.WithoutCancel(b.Context())); err != nil {
				b.Error(err)
			}
		})
	}
}

func fourAtATime(b *testing.B, pods []*v1.Pod, f func(*v1.Pod) error) {
	b.Helper()
	var wg sync.WaitGroup
	next := make(chan *v1.Pod)
	for range 4 {
		wg.Go(func() {
			for p := range next {
				if err := f(p); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, p := range pods {
		next <- p
	}
	close(next)
	wg.Wait()
}
