package enginetest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/runonce/runonce/runtime/engine"
)

// Exec asks the script.
func (e *Engine) Exec(ctx context.Context, id string, command []string) (engine.ExecResult, error) {
	e.mu.Lock()
	p := e.find(id)
	runs := p != nil && p.State == engine.StateRunning
	e.mu.Unlock()
	switch {
	case p == nil:
		return engine.ExecResult{}, fmt.Errorf("running %q in container %q: %w", command, id, engine.ErrNotFound)
	case !runs:
		return engine.ExecResult{}, fmt.Errorf("running %q in container %q: it is not running", command, id)
	}
	if p.life.ExecTakes != nil {
		select {
		case <-time.After(p.life.ExecTakes(command)):
		case <-p.done: // which kills its other processes
			return engine.ExecResult{ExitCode: 128 + int32(syscall.SIGKILL)}, nil
		case <-ctx.Done():
			return engine.ExecResult{}, fmt.Errorf("running %q in container %q: %w", command, id, ctx.Err())
		}
	}
	if p.life.Exec == nil {
		return engine.ExecResult{}, nil
	}
	return p.life.Exec(command), nil
}

// ExecStreams asks the script, and writes what it was given and then what it answers.
func (e *Engine) ExecStreams(ctx context.Context, id string, c engine.Command, s engine.Streams) (int32, error) {
	result, err := e.Exec(ctx, id, c.Args)
	if err != nil {
		return 0, err
	}
	if s.Starting != nil {
		if err := s.Starting(id, "exec"); err != nil {
			return 0, err
		}
	}
	if s.Started != nil {
		s.Started()
	}
	if s.Stdin != nil {
		if _, err := io.Copy(s.Stdout, s.Stdin); err != nil {
			return 0, err
		}
	}
	if s.Stdout != nil {
		_, err = s.Stdout.Write(result.Output)
	}
	return result.ExitCode, err
}

// Attach has the container answer with what it is given, after its log if it has not started yet. One that has StdinOnce,
// and would run for ever, ends with that.
func (e *Engine) Attach(ctx context.Context, id string, s engine.Streams) error {
	p, created := e.attachable(id)
	if p == nil {
		return fmt.Errorf("attaching to container %q: it does not run, or has no input", id)
	}
	if s.Started != nil {
		s.Started()
	}
	select {
	case <-p.started:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if created && len(p.life.Log) > 0 {
		if _, err := fmt.Fprintln(s.Stdout, strings.Join(p.life.Log, "\n")); err != nil {
			return err
		}
	}
	if s.Stdin != nil {
		if _, err := io.Copy(s.Stdout, s.Stdin); err != nil {
			return err
		}
		if p.stdinOnce && p.life.Runs {
			e.Kill(id, 0)
		}
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// attachable returns the container if it has an input and has not ended, and whether it is yet to start.
func (e *Engine) attachable(id string) (p *process, created bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p = e.find(id); p == nil || !p.stdin || p.State != engine.StateCreated && p.State != engine.StateRunning {
		return nil, false
	}
	return p, p.State == engine.StateCreated
}
