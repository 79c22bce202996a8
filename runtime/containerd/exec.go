package containerd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/runtime/containerd/errs"
)

// Exec runs a command inside the container.
func (e *Engine) Exec(ctx context.Context, id string, args []string) (engine.ExecResult, error) {
	var res engine.ExecResult
	if len(args) == 0 {
		return res, fmt.Errorf("running a command in container %q: there is none", id)
	}
	err := e.do(ctx, func(ctx context.Context, s *session) (err error) {
		res, err = e.exec(ctx, s, id, args)
		return err
	})
	if err != nil {
		return res, fmt.Errorf("running %q in container %q: %w", args[0], id, err)
	}
	return res, nil
}

func (e *Engine) exec(ctx context.Context, s *session, id string, args []string) (engine.ExecResult, error) {
	process, err := execProcess(ctx, s, id, args, false)
	if ctx.Err() != nil {
		return engine.ExecResult{}, ctx.Err()
	}
	if err != nil {
		return engine.ExecResult{}, err
	}
	out, err := newCapture(e.execDir())
	if err != nil {
		return engine.ExecResult{}, err
	}
	defer out.close()
	code, err := newCommand(s, id).run(ctx, process, stdio{stdout: out.path, stderr: out.path, release: out.release})
	if err != nil {
		return engine.ExecResult{}, execError(ctx, err, args)
	}
	out.wait(execDrain)
	return engine.ExecResult{ExitCode: code, Output: out.kept}, nil
}

func newCommand(s *session, container string) command {
	return command{tasks: s.Tasks(), container: container, id: "exec-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
}

// execError is the error of a command that could not be run, in plain words.
func execError(ctx context.Context, err error, args []string) error {
	if errdefs.IsUnavailable(err) || errdefs.IsNotFound(err) || ctx.Err() != nil {
		return err
	}
	return failure.WithMessage(errs.Message(err, args[0]), err)
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
