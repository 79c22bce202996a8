package runonce

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// gate bounds how many pods are worked on at once and lets those of low rank in first.
type gate struct {
	mu   sync.Mutex
	free int
	line []*ticket // those who wait, in order of rank
}

// ticket is a place in line.
type ticket struct {
	rank int
	in   chan struct{} // closed when its owner may enter
}

// queue takes a place in line, or a free place inside at once.
func (g *gate) queue(rank int) *ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &ticket{rank: rank, in: make(chan struct{})}
	if g.free > 0 {
		g.free--
		close(t.in)
		return t
	}
	at, _ := slices.BinarySearchFunc(g.line, t, func(a, b *ticket) int { return cmp.Compare(a.rank, b.rank) })
	g.line = slices.Insert(g.line, at, t)
	return t
}

// enter waits until the ticket's turn has come. Whoever entered has to leave.
func (g *gate) enter(ctx context.Context, t *ticket) error {
	select {
	case <-t.in:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	at := slices.Index(g.line, t)
	if at >= 0 {
		g.line = slices.Delete(g.line, at, at+1)
	}
	g.mu.Unlock()
	if at < 0 {
		g.leave()
	}
	return context.Cause(ctx)
}

// leave lets the next one in.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.line) == 0 {
		g.free++
		return
	}
	next := g.line[0]
	g.line = g.line[1:]
	close(next.in)
}
