// Package task is the task service of a shim: it has an OCI runtime run the containers of a
// pod, writes their output to CRI log files and their exits to exit records, so that both
// outlive the program that started them, and reports to containerd.
package task

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

const (
	// idleTimeout is how long a shim waits for its first container, and how long it stays when
	// containerd is gone and it has none.
	idleTimeout = 10 * time.Second
	// flushTimeout bounds the wait for the last events when the shim ends.
	flushTimeout = 2 * time.Second
)

// Service is the task service.
type Service struct {
	o       Options
	events  *publisher
	methods map[string]method

	mu         sync.Mutex
	containers map[string]*container
	followed   map[string]bool // files of runs
	done       chan struct{}   // closed when the shim ends
}

// method is a method of the service with its encoded request.
type method func(ctx context.Context, payload []byte) (ttrpc.Message, error)

// Options are those of a service.
type Options struct {
	Namespace string // containerd's
	Address   string // of containerd's ttrpc socket
	Reaper    *oci.Reaper
	// Connections returns how many clients there are.
	Connections func() int
	// Leave has nobody find the shim any more. It is called once, when the shim is to end, and before the call that ends
	// it is answered: whoever then starts the next container of the group finds no shim.
	Leave func()
	// RemoveBundles says that deleting a container removes its bundle, so that containerd finds nothing to do.
	RemoveBundles bool
}

// New returns a service.
func New(o Options) *Service {
	s := &Service{
		o: o, events: newPublisher(o.Namespace, o.Address),
		containers: map[string]*container{}, followed: map[string]bool{}, done: make(chan struct{}),
	}
	s.methods = map[string]method{
		"Create": decode(s.create), "Start": decode(s.start), "Delete": decode(s.delete), "Exec": decode(s.exec), protocol.TiedExec: decode(s.tiedExec),
		"ResizePty": decode(s.resize), "State": decode(s.state), "Pids": decode(s.pids), "Stats": decode(s.stats), "Pause": decode(s.pause),
		"Resume": decode(s.resume), "Kill": decode(s.kill), "CloseIO": decode(s.closeIO), "Update": decode(s.update),
		"Wait": decode(s.wait), "Connect": decode(s.connect), "Shutdown": decode(s.shutdown),
	}
	s.Idle()
	return s
}

// decode makes a method of a function that takes its request.
func decode[T any, M interface {
	*T
	ttrpc.Message
}](f func(context.Context, M) (ttrpc.Message, error)) method {
	return func(ctx context.Context, payload []byte) (ttrpc.Message, error) {
		m := M(new(T))
		if err := ttrpc.Unmarshal(payload, m); err != nil {
			return nil, ttrpc.Errorf(ttrpc.InvalidArgument, "%w", err)
		}
		return f(ctx, m)
	}
}

// Handle answers a call.
func (s *Service) Handle(ctx context.Context, name string, payload []byte) (ttrpc.Message, error) {
	f, ok := s.methods[name]
	if !ok {
		return nil, ttrpc.Errorf(ttrpc.Unimplemented, "%s is not supported by this shim", name)
	}
	return f(ctx, payload)
}

// Done is closed when the shim must end.
func (s *Service) Done() <-chan struct{} { return s.done }

// Flush waits until containerd has the last events.
func (s *Service) Flush() { s.events.flush(flushTimeout) }

// Idle ends the shim after a while unless it has containers or clients by then. Without
// either, nobody can end it any more.
func (s *Service) Idle() {
	time.AfterFunc(idleTimeout, func() {
		if s.o.Connections() == 0 {
			s.end()
		}
	})
}

// end ends the shim when it has no containers.
func (s *Service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.containers) > 0 {
		return
	}
	select {
	case <-s.done:
	default:
		s.o.Leave()
		close(s.done)
	}
}

func (s *Service) shutdown(context.Context, *ttrpc.Request) (ttrpc.Message, error) {
	s.end()
	return &ttrpc.Empty{}, nil
}

func (s *Service) connect(_ context.Context, r *ttrpc.Request) (ttrpc.Message, error) {
	resp := &ttrpc.ConnectResponse{ShimPID: uint32(os.Getpid())}
	if c, err := s.container(r.ID); err == nil {
		resp.TaskPID = uint32(c.init.pid)
	}
	return resp, nil
}

// container returns a created container.
func (s *Service) container(id string) (*container, error) {
	s.mu.Lock()
	c := s.containers[id]
	s.mu.Unlock()
	if c == nil || !c.isCreated() {
		return nil, ttrpc.Errorf(ttrpc.NotFound, "container not created")
	}
	return c, nil
}

// process returns a process of a container, the first one without an ID.
func (s *Service) process(r ttrpc.Request) (*container, *containerProcess, error) {
	c, err := s.container(r.ID)
	if err != nil {
		return nil, nil, err
	}
	if r.ExecID == "" {
		return c, &c.init, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.execs[r.ExecID]
	if !ok {
		return nil, nil, ttrpc.Errorf(ttrpc.NotFound, "process does not exist %s", r.ExecID)
	}
	return c, p, nil
}

func (s *Service) add(c *container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
		return ttrpc.Errorf(ttrpc.Unavailable, "ttrpc: the shim is ending")
	default:
	}
	if s.containers[c.id] != nil {
		return ttrpc.Errorf(ttrpc.AlreadyExists, "container %s", c.id)
	}
	s.containers[c.id] = c
	return nil
}

// has reports whether the container was not deleted. There may already be another one of its name,
// for which the OCI runtime must not do what was asked for this one.
func (s *Service) has(c *container) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[c.id] == c
}

func (s *Service) remove(id string) {
	s.mu.Lock()
	delete(s.containers, id)
	s.mu.Unlock()
	if s.o.Connections() == 0 {
		s.Idle()
	}
}

func (s *Service) state(_ context.Context, r *ttrpc.Request) (ttrpc.Message, error) {
	c, p, err := s.process(*r)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := &ttrpc.StateResponse{Bundle: c.bundle, PID: uint32(p.pid), State: p.state, Stdio: p.stdio, Exit: p.exit}
	resp.ID = p.id
	if c.init.state == ttrpc.Paused {
		resp.State = ttrpc.Paused
	}
	return resp, nil
}

func (s *Service) wait(ctx context.Context, r *ttrpc.Request) (ttrpc.Message, error) {
	c, p, err := s.process(*r)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &p.exit, nil
}

func (s *Service) resize(_ context.Context, r *ttrpc.ResizeRequest) (ttrpc.Message, error) {
	c, p, err := s.process(r.Request)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &ttrpc.Empty{}, p.streams.resize(r.Width, r.Height)
}

func (s *Service) closeIO(_ context.Context, r *ttrpc.CloseIORequest) (ttrpc.Message, error) {
	c, p, err := s.process(r.Request)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Stdin && p.streams != nil {
		p.streams.closeInput()
	}
	return &ttrpc.Empty{}, nil
}
