package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

const (
	// execStartTimeout bounds the start of a command, whatever its own time limit is.
	execStartTimeout = time.Minute
	// execDrain bounds the wait for the rest of a command's output after its end: a child
	// process that it left may hold the pipe.
	execDrain = 5 * time.Second
)

// errLost is the error of a command whose end nobody has seen.
var errLost = errors.New("the connection to containerd was lost while it ran")

// execDir has a directory for each command that runs in a container.
func (o Options) execDir() string { return filepath.Join(o.State, "exec") }

// Exec runs a command inside the container.
func (e *Engine) Exec(ctx context.Context, id string, args []string) (res engine.ExecResult, err error) {
	if e.o.Looks {
		return e.execToLook(ctx, id, args)
	}
	err = e.inContainer(ctx, id, engine.Command{Args: args}, nil, func(ctx context.Context, x command) error {
		var out limitedBuffer
		res.ExitCode, err = x.run(ctx, e.o.execDir(), engine.Streams{Stdout: &out}, true)
		res.Output = out
		return err
	})
	return res, err
}

// ExecStreams runs a command inside the container, with streams.
func (e *Engine) ExecStreams(ctx context.Context, id string, c engine.Command, s engine.Streams) (code int32, err error) {
	code, ok, err := e.o.execTied(ctx, id, c, s, s.TTY)
	if ok {
		return code, err
	}
	begun := false
	err = e.inContainer(ctx, id, c, consoleSize(s), func(ctx context.Context, x command) error {
		if begun {
			return errLost
		}
		begun = true
		code, err = x.run(ctx, e.o.execDir(), s, s.TTY)
		return err
	})
	return code, err
}

// EndCommand kills a command that ExecStreams runs, with what descends from it, for a process that
// was killed meanwhile. The command is known by what Streams.Starting was called with, and the
// options are those of the engine that runs it.
//
// It tries for a minute, whatever fails: nobody would do it later.
func EndCommand(ctx context.Context, o Options, container, id string) (err error) {
	if err := o.complete(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, o.Namespace), execStartTimeout)
	defer cancel()
	for ctx.Err() == nil {
		var s *session
		if s, err = connect(ctx, o); err == nil {
			err = errors.Join(end(ctx, s.Tasks(), container, id), s.Close())
		}
		if err == nil {
			return nil
		}
		time.Sleep(pollInterval)
	}
	return err
}

// limitedBuffer keeps the first MaxExecOutput bytes that are written to it.
type limitedBuffer []byte

func (b *limitedBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), engine.MaxExecOutput-len(*b))]...)
	return len(p), nil
}

// command is one command in one container.
type command struct {
	tasks     tasks
	container string
	id        string // unique in the container
	process   typeurl.Any
}

func newExecID() string { return "exec-" + strconv.FormatInt(time.Now().UnixNano(), 36) }

// inContainer calls run, again with each new session, with a command for the container.
func (e *Engine) inContainer(ctx context.Context, id string, c engine.Command, terminal *specs.Box, run func(context.Context, command) error) error {
	return inCommand(ctx, id, c, e.do(ctx, func(ctx context.Context, s *session) error {
		process, err := s.execProcess(ctx, id, c, terminal)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		return execError(ctx, run(ctx, command{s.Tasks(), id, newExecID(), process}), c.Args)
	}))
}

// inCommand adds to an error which command it is about.
func inCommand(ctx context.Context, id string, c engine.Command, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %s", ended, err.Error()) // daemons answer with a text
	}
	name := ""
	if len(c.Args) > 0 {
		name = c.Args[0]
	}
	return fmt.Errorf("running %q in container %q: %w", name, id, err)
}

// execError is the error of a command that could not be run, in plain words.
func execError(ctx context.Context, err error, args []string) error {
	if err == nil || errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) || ctx.Err() != nil {
		return err
	}
	return failure.WithMessage(failure.RuntimeMessage(err, args[0]), err)
}

// execProcess returns the process of a command in the container.
func (s *session) execProcess(ctx context.Context, id string, c engine.Command, terminal *specs.Box) (typeurl.Any, error) {
	known, err := s.ContainerService().Get(ctx, id)
	if err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := typeurl.UnmarshalTo(known.Spec, &spec); err != nil {
		return nil, fmt.Errorf("reading its spec: %w", err)
	}
	return execProcess(&spec, c, terminal)
}

// consoleSize returns the size of the terminal of a command, nil for none.
func consoleSize(s engine.Streams) *specs.Box {
	if !s.TTY {
		return nil
	}
	return &specs.Box{Width: uint(s.Size.Width), Height: uint(s.Size.Height)}
}

// execProcess returns a container's own process with another command, and with the terminal, nil for none.
func execProcess(spec *specs.Spec, c engine.Command, terminal *specs.Box) (typeurl.Any, error) {
	switch {
	case len(c.Args) == 0:
		return nil, errors.New("there is no command")
	case spec.Process == nil:
		return nil, errors.New("reading its spec: it has no process")
	}
	p := spec.Process
	p.Terminal, p.ConsoleSize = terminal != nil, terminal
	p.Args, p.Cwd = c.Args, cmp.Or(c.Dir, p.Cwd)
	if c.User != nil {
		p.User = *c.User
	}
	if p.Terminal {
		p.Env = append(p.Env, "TERM=xterm") // as under every CRI runtime
	}
	p.Env = append(p.Env, c.Env...)
	packed, err := typeurl.MarshalAny(p)
	if err != nil {
		return nil, fmt.Errorf("encoding the process: %w", err)
	}
	return packed, nil
}

// run runs the command and returns its exit code. Its pipes are below dir. If it has one output,
// that goes to Stdout.
func (x command) run(ctx context.Context, dir string, s engine.Streams, oneOutput bool) (int32, error) {
	p, err := newPipes(dir, s, oneOutput)
	if err != nil {
		return 0, err
	}
	defer p.close()
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.Starting != nil {
		if err := s.Starting(x.container, x.id); err != nil {
			return 0, err
		}
	}
	code, err := x.await(ctx, p, func() {
		if s.Started != nil {
			s.Started()
		}
		p.begin(streaming, x)
	})
	if err != nil {
		return 0, err
	}
	p.wait(ctx)
	return code, nil
}

// await starts the command and waits for its end. When ctx ends first the command is killed, but
// its start is not interrupted: a runtime that is killed meanwhile may leave a process that
// nobody knows.
func (x command) await(ctx context.Context, p *pipes, started func()) (int32, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), execStartTimeout)
	defer cancel()
	if err := x.add(starting, p); err != nil {
		return 0, images.NativeError(err)
	}
	defer x.remove(ctx)
	runs, err := x.tasks.Start(starting, &tasksapi.StartRequest{ContainerID: x.container, ExecID: x.id})
	p.release()
	if err != nil {
		return 0, images.NativeError(err)
	}
	started()
	code, err := x.wait(ctx)
	if ctx.Err() != nil {
		_ = killTree(runs.GetPid())
		return 0, ctx.Err()
	}
	return code, images.NativeError(err)
}

func (x command) add(ctx context.Context, p *pipes) error {
	_, err := x.tasks.Exec(ctx, &tasksapi.ExecProcessRequest{
		ContainerID: x.container, ExecID: x.id, Spec: typeurl.MarshalProto(x.process),
		Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr, Terminal: p.streams.TTY,
	})
	return err
}

func (x command) wait(ctx context.Context) (int32, error) {
	r, err := x.tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: x.container, ExecID: x.id})
	return int32(r.GetExitStatus()), err
}

// end kills and removes a command that another process has started, or was about to.
func end(ctx context.Context, tasks tasksapi.TasksClient, container, id string) error {
	x := command{tasks: tasks, container: container, id: id}
	for {
		r, err := tasks.Get(ctx, &tasksapi.GetRequest{ContainerID: container, ExecID: id})
		if err != nil && ctx.Err() == nil {
			return images.IgnoreNotFound(images.NativeError(err))
		}
		if p := r.GetProcess(); p.GetStatus() == task.Status_STOPPED || p.GetPid() != 0 || ctx.Err() != nil {
			defer x.remove(ctx)
			if p.GetStatus() == task.Status_STOPPED {
				return nil // its number may be another's by now
			}
			return killTree(p.GetPid())
		}
		time.Sleep(pollInterval)
	}
}

// killTree kills a process that a shim has started with all that descend from it: a shim kills the
// process alone. It does nothing if the process is one of another PID namespace, as when a daemon's
// socket was mounted into a container.
func killTree(pid uint32) error {
	if shim, ok := process.Parent(int(pid)); pid == 0 || !ok || !strings.Contains(process.Name(shim), "shim") {
		return nil
	}
	return process.KillTree(int(pid))
}

// remove kills the command if it still runs, and deletes it.
func (x command) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if x.delete(ctx) == nil {
		return
	}
	_, err := x.tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: x.container, ExecID: x.id, Signal: uint32(syscall.SIGKILL)})
	if images.IgnoreNotFound(err) == nil {
		_, _ = x.wait(ctx)
	}
	// What is left is removed with the container.
	_ = x.delete(ctx)
}

func (x command) delete(ctx context.Context) error {
	_, err := x.tasks.DeleteProcess(ctx, &tasksapi.DeleteProcessRequest{ContainerID: x.container, ExecID: x.id})
	return images.IgnoreNotFound(err)
}
