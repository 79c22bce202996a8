package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/containerd/link"
	"github.com/runonce/runonce/runtime/containerd/spawn"
	"github.com/runonce/runonce/runtime/shim/handoff"
)

// streams are the addresses of a container's input and output, as a task is created with
// them.
type streams struct {
	stdin, stdout, stderr string
	// release is to be called once the task is created, or could not be.
	release func()
}

// streams makes the container's streams. Our own shim makes pipes of its addresses. A
// foreign one starts our logger, but knows neither input nor terminals then: for these the
// logger is started here, at the other end of pipes.
func (e *Engine) streams(ctx context.Context, s *link.Session, c engine.ContainerConfig, foreign bool) (streams, error) {
	out := handoff.Output{LogPath: c.LogPath, RecordPath: e.recordPath(c.ID)}
	io := streams{release: func() {}}
	switch {
	case !foreign:
		io.stdout, io.stderr = out.URI(), out.URI()
		if c.Stdin {
			io.stdin = handoff.Stdin
		}
	case c.LogPath == "":
	case !c.Stdin && !terminal(c):
		io.stdout = out.LoggerURI(s.Shim)
		io.stderr = io.stdout
	default:
		return e.pipes(ctx, s, c, out)
	}
	return io, nil
}

// pipes makes the streams of a container of a foreign shim, with a logger of our own.
func (e *Engine) pipes(ctx context.Context, s *link.Session, c engine.ContainerConfig, out handoff.Output) (streams, error) {
	l := spawn.Logger{
		Program: s.Shim, Dir: e.stdioDir(c.ID), URI: out.URI(), ID: c.ID, Namespace: e.o.Namespace, Stdin: c.Stdin, Terminal: terminal(c),
	}
	release, err := l.Start(ctx)
	if err != nil {
		return streams{}, errors.Join(fmt.Errorf("making the pipes for its streams: %w", err), os.RemoveAll(l.Dir))
	}
	io := streams{stdout: filepath.Join(l.Dir, spawn.Stdout), release: release}
	if c.Stdin {
		io.stdin = filepath.Join(l.Dir, spawn.Stdin)
	}
	if !l.Terminal {
		io.stderr = filepath.Join(l.Dir, spawn.Stderr)
	}
	return io, nil
}

func terminal(c engine.ContainerConfig) bool {
	return c.Spec.Process != nil && c.Spec.Process.Terminal
}

// stdioDir holds the pipes of a container of a foreign shim.
func (e *Engine) stdioDir(id string) string { return filepath.Join(e.o.State, "stdio", id) }
