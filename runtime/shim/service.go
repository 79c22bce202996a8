package shim

import (
	"context"
	"sync"
	"time"

	eventstypes "github.com/containerd/containerd/api/events"
	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"

	"github.com/runonce/runonce/runtime/shim/exitrecord"
)

// drainTimeout bounds the wait for the end of an exited container's output: a process of
// another container of the pod may hold the pipe when they share a PID namespace. A deletion
// waits for it, and containerd gives a deletion 5 s when it finds a leaked shim.
const drainTimeout = 4 * time.Second

// service is containerd's task service with our log writer and exit records.
type service struct {
	taskAPI.TTRPCTaskService
	socket string // path at which the shim listens

	execs execs

	mu         sync.Mutex
	containers map[string]*container
}

// container is what the shim adds to one container.
type container struct {
	out    *output
	bundle string
	path   string        // of the record
	ended  chan struct{} // closed once the exit is recorded
	// created is set once the service inside has it; service.mu guards it.
	created bool

	mu     sync.Mutex
	oom    bool
	start  time.Time
	closed bool
}

// RegisterTTRPC serves s instead of the service inside it.
func (s *service) RegisterTTRPC(server *ttrpc.Server) error {
	taskAPI.RegisterTTRPCTaskService(server, s)
	return nil
}

// Create makes the container's pipes when its stdout is an output URI of ours.
func (s *service) Create(ctx context.Context, r *taskAPI.CreateTaskRequest) (*taskAPI.CreateTaskResponse, error) {
	where, ok := exitrecord.ParseOutput(r.Stdout)
	if !ok {
		return s.TTRPCTaskService.Create(ctx, r)
	}
	if r.Stdin == exitrecord.Stdin {
		path, err := makeStdin(r.Bundle)
		if err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
		r.Stdin = path
	}
	out, err := newOutput(r.Bundle, where.LogPath, r.Terminal)
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	r.Stdout, r.Stderr = out.stdout, out.stderr
	// Before it is created, since it may exit or run out of memory at once.
	c := &container{out: out, bundle: r.Bundle, path: where.RecordPath, ended: make(chan struct{})}
	s.mu.Lock()
	s.containers[r.ID] = c
	s.mu.Unlock()
	resp, err := s.TTRPCTaskService.Create(ctx, r)
	// From now on only the runtime's side keeps the pipes open, so that they end with it.
	out.release()
	if err != nil {
		s.forget(r.ID)
		return nil, err
	}
	s.mu.Lock()
	c.created = true
	s.mu.Unlock()
	return resp, nil
}

// Start returns once the start is recorded: a process that looks for the container right
// afterwards must find the time of its start.
func (s *service) Start(ctx context.Context, r *taskAPI.StartRequest) (*taskAPI.StartResponse, error) {
	defer s.execs.hold(r.ID, r.ExecID)()
	resp, err := s.TTRPCTaskService.Start(ctx, r)
	if c := s.container(r.ID); err == nil && r.ExecID == "" && c != nil {
		c.started(r.ID, time.Now())
	}
	return resp, err
}

// State does not report an exit before the log is complete and the exit recorded.
func (s *service) State(ctx context.Context, r *taskAPI.StateRequest) (*taskAPI.StateResponse, error) {
	resp, err := s.TTRPCTaskService.State(ctx, r)
	if err == nil && r.ExecID == "" && resp.Status == tasktypes.Status_STOPPED {
		s.awaitEnd(ctx, r.ID)
	}
	return resp, err
}

// Wait does not report an exit before the log is complete and the exit recorded.
func (s *service) Wait(ctx context.Context, r *taskAPI.WaitRequest) (*taskAPI.WaitResponse, error) {
	resp, err := s.TTRPCTaskService.Wait(ctx, r)
	if err == nil && r.ExecID == "" {
		s.awaitEnd(ctx, r.ID)
	}
	return resp, err
}

// Delete forgets the container's pipes once it is gone. The exit record stays, since the
// engine owns it. It is written here when containerd deletes the task before the exit event
// has come: otherwise nobody would know the exit code any more.
func (s *service) Delete(ctx context.Context, r *taskAPI.DeleteRequest) (*taskAPI.DeleteResponse, error) {
	if r.ExecID != "" {
		return s.TTRPCTaskService.Delete(ctx, r)
	}
	c := s.container(r.ID)
	if c != nil {
		defer ensureBundle(c.bundle)()
	}
	resp, err := s.deleteTask(ctx, r)
	if err != nil {
		return nil, err
	}
	if c != nil && c.hasStarted() {
		c.exited(&eventstypes.TaskExit{
			ContainerID: r.ID, ID: r.ID, Pid: resp.Pid, ExitStatus: resp.ExitStatus, ExitedAt: resp.ExitedAt,
		})
	}
	s.forget(r.ID)
	return resp, err
}

func (s *service) container(id string) *container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[id]
}

func (s *service) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, id)
}

func (s *service) awaitEnd(ctx context.Context, id string) {
	c := s.container(id)
	if c == nil {
		return
	}
	t := time.NewTimer(2 * drainTimeout)
	defer t.Stop()
	select {
	case <-c.ended:
	case <-t.C:
	case <-ctx.Done():
	}
}

// publisher sees every event on its way to containerd.
type publisher struct {
	shim.Publisher
	service *service
}

// Publish records exits before it forwards them, so that whoever receives one finds the
// whole log and the record.
func (p publisher) Publish(ctx context.Context, topic string, event events.Event) error {
	switch e := event.(type) {
	case *eventstypes.TaskStart:
		if c := p.service.container(e.ContainerID); c != nil {
			c.started(e.ContainerID, time.Now())
		}
	case *eventstypes.TaskOOM:
		if c := p.service.container(e.ContainerID); c != nil {
			c.ranOutOfMemory()
		}
	case *eventstypes.TaskExit:
		if c := p.service.container(e.ContainerID); c != nil && e.ID == e.ContainerID && c.exited(e) {
			go p.service.cleanupOrphan(context.WithoutCancel(ctx), e.ContainerID)
		}
	}
	return p.Publisher.Publish(ctx, topic, event)
}

func (c *container) started(id string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.start.IsZero() {
		return // the event and the answer to the call come in any order
	}
	c.start = at
	if c.path != "" && !c.closed {
		// Without the record, those who watch now still get the event.
		_ = exitrecord.Record{ContainerID: id, StartedAt: at}.Write(c.path)
	}
}

func (c *container) hasStarted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.start.IsZero()
}

func (c *container) ranOutOfMemory() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.oom = true
}

// exited records the end. It returns false when that was done, or could not be.
func (c *container) exited(e *eventstypes.TaskExit) bool {
	select {
	case <-c.ended:
		return false
	default:
	}
	c.out.drain(drainTimeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.closed = true
	defer close(c.ended)
	if c.path == "" {
		return false
	}
	// Without the record, those who watch now still get the event.
	err := exitrecord.Record{
		ContainerID: e.ContainerID,
		ExitCode:    int32(e.ExitStatus),
		OOMKilled:   c.oom,
		StartedAt:   c.start,
		FinishedAt:  e.ExitedAt.AsTime(),
	}.Write(c.path)
	return err == nil
}
