package runonce

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// semaphore limits how many pods are worked on at once, and serves low ranks first.
type semaphore struct {
	mu    sync.Mutex
	free  int
	queue []*waiter // by rank
}

type waiter struct {
	rank  int
	ready chan struct{} // closed when it holds a slot
}

// reserve queues for a slot; a free one is held at once.
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

// holds says whether the waiter holds a slot.
func (w *waiter) holds() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// acquire waits until the waiter holds a slot. It returns false when ctx is done.
func (w *waiter) acquire(ctx context.Context) bool {
	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// leave releases the slot of the waiter, or removes the waiter from the queue. It must be called
// once for each waiter.
func (s *semaphore) leave(w *waiter) {
	s.mu.Lock()
	at := slices.Index(s.queue, w)
	if at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	s.mu.Unlock()
	if at < 0 {
		s.release()
	}
}

// release passes the slot on to the next waiter.
func (s *semaphore) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.free++
		return
	}
	close(s.queue[0].ready)
	s.queue = s.queue[1:]
}
