package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// container is a container with its processes.
type container struct {
	id, bundle string
	record     string // path of the exit record, if it has one
	runtime    oci.Runtime
	spec       oci.Spec
	options    ttrpc.Options
	owner      owner              // of its pipes
	cancel     context.CancelFunc // ends its creation
	created    chan struct{}      // closed when it is created, or is not
	oom        *oomWatch

	commands sync.Mutex // one command of the OCI runtime at a time
	starting lock       // until its creation or its start is told to containerd

	mu      sync.Mutex // for what follows, and its processes; never held for long
	init    containerProcess
	execs   map[string]*containerProcess
	started time.Time
}

// lock is a mutex for which one can wait for a limited time.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// LockUntil reports whether it has the lock, which it has not if ctx is done before.
func (l lock) LockUntil(ctx context.Context) bool {
	select {
	case l <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// containerProcess is a process of a container.
type containerProcess struct {
	id      string
	stdio   ttrpc.Stdio
	streams *streams
	spec    []byte // of a process that is not the first one
	tied    bool   // ends with the connection over which it is started
	pid     int
	state   uint32
	exit    ttrpc.Exit
	done    chan struct{} // closed when it has ended, and its log and record are complete
}

const (
	optionsType = "containerd.runc.v1.Options"
	googleapis  = "type.googleapis.com/"
)

func (s *Service) newContainer(r *ttrpc.CreateRequest) (*container, error) {
	if r.Checkpoint != "" {
		return nil, ttrpc.Errorf(ttrpc.Unimplemented, "this shim does not restore checkpoints")
	}
	c := &container{
		id: r.ID, bundle: r.Bundle, starting: make(lock, 1), created: make(chan struct{}), execs: map[string]*containerProcess{},
		init: containerProcess{id: r.ID, stdio: r.Stdio, done: make(chan struct{})},
	}
	if u := strings.TrimPrefix(r.Options.TypeURL, googleapis); u != "" && u != optionsType {
		return nil, ttrpc.Errorf(ttrpc.InvalidArgument, "options of type %s", u)
	}
	err := ttrpc.Unmarshal(r.Options.Value, &c.options)
	if err != nil {
		return nil, ttrpc.Errorf(ttrpc.InvalidArgument, "reading the options: %w", err)
	}
	if c.spec, err = oci.ReadSpec(r.Bundle); err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	c.runtime = oci.NewRuntime(c.options, s.o.Namespace, s.o.Reaper)
	c.owner = owner{int(c.options.IoUID), int(c.options.IoGID)}
	if out, ok := protocol.ParseOutput(r.Stdout); ok {
		c.record = out.RecordPath
		s.follow(out.RunFile)
		if out.NoteBundle {
			noteBundle(c.record, r.Bundle)
		}
	}
	return c, oci.Own(r.Bundle, c.options)
}

// noteBundle leaves a link to the bundle. Without it, the container may still leave nothing.
func noteBundle(record, bundle string) {
	link := protocol.BundlePath(record)
	_ = os.Remove(link)
	_ = os.Symlink(bundle, link)
}

func (s *Service) create(ctx context.Context, r *ttrpc.CreateRequest) (ttrpc.Message, error) {
	c, err := s.newContainer(r)
	if err != nil {
		return nil, err
	}
	// It also ends with the connection: without containerd nobody wants the container.
	ctx, c.cancel = context.WithTimeout(ctx, oci.StartLimit)
	defer c.cancel()
	if err := s.add(c); err != nil {
		return nil, err
	}
	defer s.o.Reaper.Hold()()
	c.starting.Lock()
	defer c.starting.Unlock()
	defer close(c.created)
	pid, err := s.launch(ctx, c, r.Rootfs)
	if err != nil {
		s.remove(c.id)
		return nil, err
	}
	c.oom = watchOOM(pid, func() { s.tell("oom", "TaskOOM", c.id) })
	c.mu.Lock()
	c.init.pid, c.init.state = pid, ttrpc.Created
	c.mu.Unlock()
	s.events.publish("create", "TaskCreate", &ttrpc.TaskCreate{ID: c.id, Bundle: c.bundle, Rootfs: r.Rootfs, IO: r.Stdio, PID: uint32(pid)})
	s.o.Reaper.Watch(pid, func(e oci.Exit) { go s.exited(context.WithoutCancel(ctx), c, e) })
	return &ttrpc.PID{PID: uint32(pid)}, nil
}

// launch mounts the root file system and has the OCI runtime create the container.
func (s *Service) launch(ctx context.Context, c *container, mounts []ttrpc.Mount) (pid int, err error) {
	rootfs := filepath.Join(c.bundle, "rootfs")
	defer func() {
		if err != nil {
			_ = oci.Unmount(rootfs)
		}
	}()
	for _, m := range mounts {
		if err := os.MkdirAll(rootfs, 0o711); err != nil {
			return 0, err
		}
		if err := s.o.Reaper.Mount(m, rootfs); err != nil {
			return 0, fmt.Errorf("failed to mount rootfs component: %w", err)
		}
	}
	args := []string{"create", "--bundle", c.bundle}
	if c.options.NoPivotRoot {
		args = append(args, "--no-pivot")
	}
	if c.options.NoNewKeyring {
		args = append(args, "--no-new-keyring")
	}
	if pid, err = c.run(ctx, &c.init, args, "init"); err == nil {
		return pid, nil
	}
	if ctx.Err() != nil || pid != 0 {
		// It has not removed itself.
		ctx, cancel := limited(ctx, oci.EndLimit)
		defer cancel()
		_ = c.runtime.DeleteForced(ctx, c.id)
	}
	return 0, fmt.Errorf("OCI runtime create failed: %w", err)
}

// run runs the OCI runtime's command that makes a process, and returns the process's number,
// -1 when it exists and has none. name is that of files in the bundle.
func (c *container) run(ctx context.Context, p *containerProcess, args []string, name string) (pid int, err error) {
	s, err := openStreams(ctx, p.stdio, c.owner)
	if err != nil {
		return 0, err
	}
	file := filepath.Join(c.bundle, name+".pid")
	args = append(append(args, "--pid-file", file), s.args()...)
	_, err = c.runtime.Run(ctx, oci.Command{
		Args: append(args, c.id), Files: s.theirs, Log: filepath.Join(c.bundle, name+".json"),
	})
	if err == nil {
		pid = -1
		err = s.begin(p.stdio)
	}
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(file); err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
	}
	if err != nil {
		s.close()
		return pid, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.streams = s
	return pid, nil
}

// limited returns the context of a command that runs on without the connection of who asked
// for it, but not longer than that allows, nor than the limit.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(limit)
	if asked, ok := ctx.Deadline(); ok && asked.Before(end) && time.Now().Before(asked) {
		end = asked
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}

// start returns once the start is recorded: a process that looks for the container right
// afterwards must find the time of its start.
func (s *Service) start(ctx context.Context, r *ttrpc.Request) (ttrpc.Message, error) {
	c, p, err := s.process(*r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limited(ctx, oci.StartLimit)
	defer cancel()
	if r.ExecID != "" {
		return s.startExec(ctx, c, p)
	}
	c.starting.Lock()
	defer c.starting.Unlock()
	switch state := c.stateOf(p); {
	case state == ttrpc.Created:
	case state == ttrpc.Stopped && c.started.IsZero():
		return nil, c.startError(errors.New("cannot start a container that has stopped"))
	default:
		return nil, ttrpc.Errorf(ttrpc.FailedPrecondition, "cannot start a container in state %d", state)
	}
	if c.record != "" {
		_ = protocol.Reserve(c.record) // without it, the container may still leave enough
	}
	if err := c.runtime.Start(ctx, c.id, c.spec); err != nil {
		return nil, c.startError(err)
	}
	now := time.Now()
	c.mu.Lock()
	p.state, c.started = ttrpc.Running, now
	c.mu.Unlock()
	if c.record != "" {
		// Without the record, those who watch now still get the event.
		_ = protocol.Record{ContainerID: c.id, StartedAt: now}.Write(c.record)
	}
	s.events.publish("start", "TaskStart", &ttrpc.ContainerEvent{ID: c.id, PID: uint32(p.pid)})
	return &ttrpc.PID{PID: uint32(p.pid)}, nil
}

// startError is the error of a start. A first process that was killed after its creation for want of memory
// is told as runc tells it of one that was killed before; runc's start, and crun's, do not.
func (c *container) startError(err error) error {
	if c.oom.look() {
		err = errors.New("container init was OOM-killed (memory limit too low?)")
	}
	return fmt.Errorf("OCI runtime start failed: %w", err)
}

func (c *container) isCreated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.init.pid != 0
}

func (c *container) stateOf(p *containerProcess) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.state
}

// exited makes the end of the first process known, once all others have ended, the log is
// complete and the exit recorded.
func (s *Service) exited(ctx context.Context, c *container, e oci.Exit) {
	used := c.oom.total() // before systemd removes a cgroup without processes
	// What was told before has to be told first.
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.spec.SharesPIDs() {
		_ = s.command(ctx, c, "kill", "--all", c.id, "9")
	}
	c.awaitExecs()
	c.init.streams.drain(drainTimeout)
	r := protocol.Record{ContainerID: c.id, ExitCode: int32(e.Status), FinishedAt: e.At, OOMKilled: c.oom.look(), Usage: used, StartedAt: c.started}
	c.oom.stop()
	recorded := c.record != ""
	if recorded && !c.started.IsZero() { // what never started has not exited
		recorded = r.Write(c.record) == nil
	}
	exit := s.ended(c, &c.init, e)
	s.events.publish("exit", "TaskExit", exit)
	if recorded {
		go s.cleanupOrphan(ctx, c)
	}
}

// ended notes the end of a process.
func (s *Service) ended(c *container, p *containerProcess, e oci.Exit) *ttrpc.ProcessEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.state, p.exit = ttrpc.Stopped, ttrpc.Exit{Status: uint32(e.Status), At: e.At}
	close(p.done)
	return &ttrpc.ProcessEvent{Request: ttrpc.Request{ID: c.id, ExecID: p.id}, PID: uint32(p.pid), Exit: p.exit}
}

// awaitExecs waits for the other processes of a container whose first one has ended.
func (c *container) awaitExecs() {
	c.mu.Lock()
	var running []*containerProcess
	for _, p := range c.execs {
		if p.state == ttrpc.Running {
			running = append(running, p)
		}
	}
	c.mu.Unlock()
	late := time.After(drainTimeout)
	for _, p := range running {
		select {
		case <-p.done:
		case <-late:
			return
		}
	}
}

// tell publishes an event that only names a container.
func (s *Service) tell(topic, name, id string) {
	s.events.publish(topic, name, &ttrpc.ContainerEvent{ID: id})
}
