package runonce

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// semaphore limits how many pods are worked on at once, and serves low ranks first.
type semaphore struct {
	mu    sync.Mutex
	free  int
	queue []*waiter // by rank
}

type waiter struct {
	rank int
	wake func() // called when it gets the slot that it has waited for
	held atomic.Bool
}

// holds says whether the waiter holds a slot.
func (w *waiter) holds() bool { return w.held.Load() }

// reserve queues for a slot; a free one is held at once.
func (s *semaphore) reserve(rank int, wake func()) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{rank: rank, wake: wake}
	if s.free > 0 {
		s.grant(w)
		return w
	}
	at, _ := slices.BinarySearchFunc(s.queue, w, func(a, b *waiter) int { return cmp.Compare(a.rank, b.rank) })
	s.queue = slices.Insert(s.queue, at, w)
	return w
}

// take holds a slot even if none is free; then so many more have to be left before the next one is.
func (s *semaphore) take() *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{}
	s.grant(w)
	return w
}

func (s *semaphore) grant(w *waiter) {
	s.free--
	w.held.Store(true)
}

// leave passes the slot of the waiter on, or removes the waiter from the queue. It must be called
// once for each waiter.
func (s *semaphore) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.queue, w); at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
		return
	}
	if s.free++; s.free > 0 && len(s.queue) > 0 {
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.grant(next)
		next.wake()
	}
}
