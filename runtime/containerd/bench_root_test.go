package containerd_test

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/containerd"
)

// BenchmarkStart measures opening the engine and starting 30 containers, four at a time,
// with the image there.
func BenchmarkStart(b *testing.B) {
	roottest.Require(b)
	p := newTestDirs(b)
	if err := p.openWithBox(b).Close(); err != nil {
		b.Fatal(err)
	}
	round := 0
	for b.Loop() {
		round++
		e, err := containerd.Open(b.Context(), p.options())
		if err != nil {
			b.Fatal(err)
		}
		var g errgroup.Group
		g.SetLimit(4)
		for i := range 30 {
			c := p.box(b, fmt.Sprintf("c-%d-%d", round, i), "sleep")
			g.Go(func() error { return e.Start(b.Context(), c) })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		all, err := e.Containers(b.Context(), "")
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range all {
			if err := e.Remove(b.Context(), c.ID); err != nil {
				b.Fatal(err)
			}
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
