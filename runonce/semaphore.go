package runonce

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// semaphore bounds how many pods are worked on at once and serves those of low rank first.
type semaphore struct {
	mu    sync.Mutex
	free  int
	queue []*waiter // in order of rank
}

// waiter has a place in the queue.
type waiter struct {
	rank  int
	ready chan struct{} // closed when it may go on
}

// reserve takes a place in the queue, or what is free at once.
func (s *semaphore) reserve(rank int) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{rank: rank, ready: make(chan struct{})}
	if s.free > 0 {
		s.free--
		close(w.ready)
		return w
	}
	at, _ := slices.BinarySearchFunc(s.queue, w, func(a, b *waiter) int { return cmp.Compare(a.rank, b.rank) })
	s.queue = slices.Insert(s.queue, at, w)
	return w
}

// acquire waits for the waiter's turn. Who has acquired has to release.
func (s *semaphore) acquire(ctx context.Context, w *waiter) error {
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	at := slices.Index(s.queue, w)
	if at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	s.mu.Unlock()
	if at < 0 {
		s.release()
	}
	return context.Cause(ctx)
}

// release serves the next one.
func (s *semaphore) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.free++
		return
	}
	next := s.queue[0]
	s.queue = s.queue[1:]
	close(next.ready)
}
