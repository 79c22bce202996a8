// Package cache remembers what is known of the containers and tells of changes.
package cache

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/shim/handoff"
)

// Cache is what is known of the containers, kept current by our own calls and by
// containerd's events, so that looking costs nothing. It tells subscribers of changes.
type Cache struct {
	mu   sync.Mutex
	byID map[string]*entry
	subs map[*subscriber]struct{}
}

type entry struct {
	engine.Container
	oom   bool
	ended chan struct{} // closed when the container has exited or is gone
}

// New returns an empty cache.
func New() *Cache {
	return &Cache{byID: map[string]*entry{}, subs: map[*subscriber]struct{}{}}
}

// List returns the pod's containers, or all, in order of creation.
func (c *Cache) List(podUID string) []engine.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []engine.Container
	for _, e := range c.byID {
		if podUID == "" || e.PodUID == podUID {
			one := e.Container
			one.Labels = maps.Clone(e.Labels)
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b engine.Container) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return found
}

// Get returns a container and the channel that is closed when it has exited or is gone.
func (c *Cache) Get(id string) (engine.Container, <-chan struct{}, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok {
		return engine.Container{}, nil, false
	}
	return e.Container, e.ended, true
}

// Put adds a container, or replaces what was known of it.
func (c *Cache) Put(one engine.Container) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(one.ID)
	e := &entry{Container: one, ended: make(chan struct{})}
	if one.State == engine.StateExited || one.State == engine.StateUnknown {
		close(e.ended)
	}
	c.byID[one.ID] = e
}

// Add adds a container unless it is known.
func (c *Cache) Add(one engine.Container) {
	if _, _, ok := c.Get(one.ID); !ok {
		c.Put(one)
	}
}

// Remove forgets a container, and tells those who wait for its end.
func (c *Cache) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id)
}

func (c *Cache) drop(id string) {
	e, ok := c.byID[id]
	if !ok {
		return
	}
	if e.State == engine.StateCreated || e.State == engine.StateRunning {
		close(e.ended)
	}
	delete(c.byID, id)
}

// Started notes that the process runs, and its ID on the host.
func (c *Cache) Started(id string, at time.Time, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok || e.State != engine.StateCreated {
		return
	}
	e.State, e.StartedAt, e.PID = engine.StateRunning, at, pid
	c.tell(engine.EventStarted, e)
}

// OOM notes that a process of the container was killed for want of memory.
func (c *Cache) OOM(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok || e.oom {
		return
	}
	e.oom = true
	if e.State == engine.StateExited {
		e.Exit.OOMKilled = true
	}
	c.tell(engine.EventOOM, e)
}

// Exited notes the end of the process. It returns false when that was known, or when the
// container is not.
func (c *Cache) Exited(r handoff.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[r.ContainerID]
	if !ok || e.State == engine.StateExited {
		return false
	}
	if e.State != engine.StateUnknown {
		close(e.ended)
	}
	if !r.StartedAt.IsZero() {
		e.StartedAt = r.StartedAt
	}
	if e.StartedAt.IsZero() {
		e.StartedAt = e.CreatedAt
	}
	if r.FinishedAt.Before(e.StartedAt) {
		// Two processes took the times, and the exit was faster than the news of the start.
		e.StartedAt = r.FinishedAt
	}
	e.State, e.PID = engine.StateExited, 0
	e.Exit = engine.Exit{
		ContainerID: e.ID,
		Attempt:     e.Attempt,
		ExitCode:    r.ExitCode,
		OOMKilled:   r.OOMKilled || e.oom,
		StartedAt:   e.StartedAt,
		FinishedAt:  r.FinishedAt,
	}
	c.tell(engine.EventExited, e)
	return true
}

// Lost notes that the process is gone and nobody knows how it ended.
func (c *Cache) Lost(id string, startedAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok || e.State == engine.StateExited || e.State == engine.StateUnknown {
		return
	}
	close(e.ended)
	e.State, e.PID = engine.StateUnknown, 0
	if !startedAt.IsZero() {
		e.StartedAt = startedAt
	}
	c.tell(engine.EventExited, e)
}

// tell hands an event to every subscriber. The caller holds the lock.
func (c *Cache) tell(t engine.EventType, e *entry) {
	ev := engine.Event{Type: t, ContainerID: e.ID, PodUID: e.PodUID}
	for s := range c.subs {
		s.push(ev)
	}
}

// Events sends each change until ctx is done; then the channel is closed.
func (c *Cache) Events(ctx context.Context) <-chan engine.Event {
	s := newSubscriber()
	c.subscribe(s)
	out := make(chan engine.Event)
	go func() {
		defer close(out)
		defer c.unsubscribe(s)
		for {
			for _, ev := range s.take() {
				select {
				case out <- ev:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (c *Cache) subscribe(s *subscriber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[s] = struct{}{}
}

func (c *Cache) unsubscribe(s *subscriber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subs, s)
}

// subscriber is a queue without an end, so that a slow reader never holds up the engine.
type subscriber struct {
	mu    sync.Mutex
	queue []engine.Event
	wake  chan struct{}
}

func newSubscriber() *subscriber { return &subscriber{wake: make(chan struct{}, 1)} }

func (s *subscriber) push(e engine.Event) {
	s.mu.Lock()
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) take() []engine.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queue
	s.queue = nil
	return q
}
