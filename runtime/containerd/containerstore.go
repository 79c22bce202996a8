package containerd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

// containerStore is what is known of the containers. The engine's own calls and containerd's
// events keep it current, so that reading it costs nothing. It tells subscribers of changes.
type containerStore struct {
	mu    sync.Mutex
	byID  map[string]*containerEntry
	byPod map[string]map[string]*containerEntry // the same, by UID of the pod and ID
	subs  map[*subscriber]struct{}
}

type containerEntry struct {
	engine.Container
	oom   bool
	gone  bool          // its task, and its shim knows that
	ended chan struct{} // closed by end when the container has exited or is gone
	end   func()
}

func newContainerStore() *containerStore {
	return &containerStore{byID: map[string]*containerEntry{}, byPod: map[string]map[string]*containerEntry{}, subs: map[*subscriber]struct{}{}}
}

// list returns the pod's containers, or all, in order of creation.
func (c *containerStore) list(podUID string) []engine.Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := c.byID
	if podUID != "" {
		wanted = c.byPod[podUID]
	}
	found := make([]engine.Container, 0, len(wanted))
	for _, e := range wanted {
		one := e.Container
		one.Labels = maps.Clone(e.Labels)
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b engine.Container) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return found
}

// get returns a container and the channel that is closed when it has exited or is gone.
func (c *containerStore) get(id string) (engine.Container, <-chan struct{}, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok {
		return engine.Container{}, nil, false
	}
	return e.Container, e.ended, true
}

// put adds a container, or replaces it.
func (c *containerStore) put(one engine.Container) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(one.ID)
	e := &containerEntry{Container: one, ended: make(chan struct{})}
	e.end = sync.OnceFunc(func() { close(e.ended) })
	if one.State == engine.StateExited || one.State == engine.StateUnknown {
		e.end()
	}
	c.byID[one.ID] = e
	pod, ok := c.byPod[one.PodUID]
	if !ok {
		pod = map[string]*containerEntry{}
		c.byPod[one.PodUID] = pod
	}
	pod[one.ID] = e
}

// add adds a container unless it is known.
func (c *containerStore) add(one engine.Container) {
	if _, _, ok := c.get(one.ID); !ok {
		c.put(one)
	}
}

// remove forgets a container, and tells those who wait for its end.
func (c *containerStore) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id)
}

func (c *containerStore) drop(id string) {
	e, ok := c.byID[id]
	if !ok {
		return
	}
	e.end()
	delete(c.byID, id)
	if delete(c.byPod[e.PodUID], id); len(c.byPod[e.PodUID]) == 0 {
		delete(c.byPod, e.PodUID)
	}
}

// created records the ID on the host of the process that waits to become the container's.
func (c *containerStore) created(id string, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byID[id]; ok && e.State == engine.StateCreated {
		e.PID = pid
	}
}

// deletedTask records that this process has deleted the container's task, and its shim has done so.
func (c *containerStore) deletedTask(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byID[id]; ok {
		e.gone = true
	}
}

// taskDeleted reports whether deletedTask was called, so that nothing of the task has to be looked for.
func (c *containerStore) taskDeleted(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	return ok && e.gone
}

// started records that the process runs, and its ID on the host.
func (c *containerStore) started(id string, at time.Time, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok || e.State != engine.StateCreated {
		return
	}
	if at.IsZero() {
		at = e.CreatedAt // the start is not recorded yet
	}
	e.State, e.StartedAt, e.PID = engine.StateRunning, at, pid
	c.tell(engine.EventStarted, e)
}

// outOfMemory records that a process of the container was killed because it ran out of memory.
func (c *containerStore) outOfMemory(id string) {
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

// exited records the end of the process. It returns false when that was known already, when the
// container is unknown, and when it was created but never started: then it has not exited.
func (c *containerStore) exited(r protocol.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[r.ContainerID]
	if !ok || e.State == engine.StateExited {
		return false
	}
	e.end()
	if e.State == engine.StateCreated && r.StartedAt.IsZero() {
		// It was killed before it ran. Whoever did that starts it again or removes it.
		return false
	}
	if !r.StartedAt.IsZero() {
		e.StartedAt = r.StartedAt
	}
	if r.FinishedAt.Before(e.StartedAt) {
		// The times are those of two processes: the exit was faster than the event of the start.
		e.StartedAt = r.FinishedAt
	}
	e.State, e.PID = engine.StateExited, 0
	e.Exit = engine.Exit{
		ContainerID: e.ID,
		Attempt:     e.Attempt,
		ExitCode:    r.ExitCode,
		OOMKilled:   r.OOMKilled || e.oom,
		Usage:       r.Usage,
		StartedAt:   e.StartedAt,
		FinishedAt:  r.FinishedAt,
	}
	c.tell(engine.EventExited, e)
	return true
}

// lost records that the process is gone and its exit code unknown.
func (c *containerStore) lost(id string, startedAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok || e.State == engine.StateExited || e.State == engine.StateUnknown {
		return
	}
	e.end()
	e.State, e.PID = engine.StateUnknown, 0
	if !startedAt.IsZero() {
		e.StartedAt = startedAt
	}
	c.tell(engine.EventExited, e)
}

// subscriber is an unbounded queue, so that a slow reader never blocks the engine.
type subscriber struct {
	queue []engine.Event
	wake  chan struct{}
}

// tell sends an event to every subscriber. The caller holds the lock.
func (c *containerStore) tell(t engine.EventType, e *containerEntry) {
	for s := range c.subs {
		s.queue = append(s.queue, engine.Event{Type: t, ContainerID: e.ID, PodUID: e.PodUID})
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// events sends each change until ctx is done; then the channel is closed.
func (c *containerStore) events(ctx context.Context) <-chan engine.Event {
	s, out := &subscriber{wake: make(chan struct{}, 1)}, make(chan engine.Event)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[s] = struct{}{}
	go func() {
		defer close(out)
		for c.deliver(ctx, s, out) {
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, s)
	}()
	return out
}

// deliver waits for events and passes them on. It returns false when ctx is done.
func (c *containerStore) deliver(ctx context.Context, s *subscriber, out chan<- engine.Event) bool {
	select {
	case <-s.wake:
	case <-ctx.Done():
		return false
	}
	c.mu.Lock()
	queue := s.queue
	s.queue = nil
	c.mu.Unlock()
	for _, ev := range queue {
		select {
		case out <- ev:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
