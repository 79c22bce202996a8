package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
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
func (e *Engine) execDir() string { return filepath.Join(e.o.State, "exec") }

// Exec runs a command inside the container.
func (e *Engine) Exec(ctx context.Context, id string, args []string) (res engine.ExecResult, err error) {
	err = e.inContainer(ctx, id, args, false, func(ctx context.Context, x command) error {
		var out limitedBuffer
		res.ExitCode, err = x.run(ctx, e.execDir(), engine.Streams{Stdout: &out}, true)
		res.Output = out
		return err
	})
	return res, err
}

// ExecStreams runs a command inside the container, with streams.
func (e *Engine) ExecStreams(ctx context.Context, id string, args []string, s engine.Streams) (code int32, err error) {
	begun := false
	err = e.inContainer(ctx, id, args, s.TTY, func(ctx context.Context, x command) error {
		if begun {
			return errLost
		}
		begun = true
		code, err = x.run(ctx, e.execDir(), s, s.TTY)
		return err
	})
	return code, err
}

// limitedBuffer keeps the first MaxExecOutput bytes that are written to it.
type limitedBuffer []byte

func (b *limitedBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p[:min(len(p), engine.MaxExecOutput-len(*b))]...)
	return len(p), nil
}

// command is one command in one container.
type command struct {
	tasks     tasksapi.TasksClient
	container string
	id        string // unique in the container
	process   typeurl.Any
}

// inContainer calls run, again with each new session, with a command for the container.
func (e *Engine) inContainer(ctx context.Context, id string, args []string, terminal bool, run func(context.Context, command) error) error {
	if len(args) == 0 {
		return fmt.Errorf("running a command in container %q: there is none", id)
	}
	err := e.do(ctx, func(ctx context.Context, s *session) error {
		process, err := execProcess(ctx, s, id, args, terminal)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		name := "exec-" + strconv.FormatInt(time.Now().UnixNano(), 36)
		return execError(ctx, run(ctx, command{s.Tasks(), id, name, process}), args)
	})
	if err != nil {
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %s", ended, err.Error()) // daemons answer with a text
		}
		return fmt.Errorf("running %q in container %q: %w", args[0], id, err)
	}
	return nil
}

// execError is the error of a command that could not be run, in plain words.
func execError(ctx context.Context, err error, args []string) error {
	if err == nil || errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) || ctx.Err() != nil {
		return err
	}
	return failure.WithMessage(failure.RuntimeMessage(err, args[0]), err)
}

// execProcess returns the container's own process with another command, with a terminal or
// without.
func execProcess(ctx context.Context, s *session, id string, args []string, terminal bool) (typeurl.Any, error) {
	c, err := s.ContainerService().Get(ctx, id)
	if err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := typeurl.UnmarshalTo(c.Spec, &spec); err != nil {
		return nil, fmt.Errorf("reading its spec: %w", err)
	}
	if spec.Process == nil {
		return nil, errors.New("reading its spec: it has no process")
	}
	spec.Process.Terminal = terminal
	spec.Process.Args = args
	if terminal {
		spec.Process.Env = append(spec.Process.Env, "TERM=xterm") // as under every CRI runtime
	}
	packed, err := typeurl.MarshalAny(spec.Process)
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
	code, err := x.await(ctx, p, func() { p.begin(streaming, x) })
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
	_, err := x.tasks.Exec(starting, &tasksapi.ExecProcessRequest{
		ContainerID: x.container, ExecID: x.id, Spec: typeurl.MarshalProto(x.process),
		Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr, Terminal: p.streams.TTY,
	})
	if err != nil {
		return 0, images.NativeError(err)
	}
	defer x.remove(ctx)
	_, err = x.tasks.Start(starting, &tasksapi.StartRequest{ContainerID: x.container, ExecID: x.id})
	p.release()
	if err != nil {
		return 0, images.NativeError(err)
	}
	started()
	resp, err := x.tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: x.container, ExecID: x.id})
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, images.NativeError(err)
	}
	return int32(resp.ExitStatus), nil
}

// remove kills the command if it still runs, and deletes it.
func (x command) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	del := &tasksapi.DeleteProcessRequest{ContainerID: x.container, ExecID: x.id}
	if _, err := x.tasks.DeleteProcess(ctx, del); images.IgnoreNotFound(err) == nil {
		return
	}
	_, err := x.tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: x.container, ExecID: x.id, Signal: uint32(syscall.SIGKILL)})
	if images.IgnoreNotFound(err) == nil {
		_, _ = x.tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: x.container, ExecID: x.id})
	}
	// What is left is removed with the container.
	_, _ = x.tasks.DeleteProcess(ctx, del)
}
