package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

// streams are the URIs of a container's input and output with which a task is created.
type streams struct {
	stdin, stdout, stderr string
	// release must be called after the attempt to create the task.
	release func()
}

// streams makes the container's streams. Our own shim makes pipes for its URIs. A third-party
// shim starts our logger, but then supports neither input nor terminals: for these the logger
// is started here, at the other end of pipes.
func (e *Engine) streams(ctx context.Context, s *session, c engine.ContainerConfig, thirdParty bool) (streams, error) {
	out := protocol.Output{LogPath: c.LogPath, RecordPath: e.recordPath(c.ID), Journal: e.o.Journal, NoteBundle: s.shims == nil, RunFile: c.RunFile}
	if c.Stdin || terminal(c) {
		out.AttachPath, out.Input, out.InputOnce = e.attachPath(c.ID), c.Stdin, c.StdinOnce
	}
	io := streams{release: func() {}}
	switch {
	case !thirdParty:
		io.stdout, io.stderr = out.URI(), out.URI()
		if c.Stdin {
			io.stdin = protocol.Stdin
		}
	case c.LogPath == "":
	case !c.Stdin && !terminal(c):
		io.stdout = out.LoggerURI(s.shim)
		io.stderr = io.stdout
	default:
		return e.pipes(ctx, s, c, out)
	}
	return io, nil
}

// pipes makes the streams of a container with a third-party shim, and starts their logger.
func (e *Engine) pipes(ctx context.Context, s *session, c engine.ContainerConfig, out protocol.Output) (streams, error) {
	l := logger{
		program: s.shim, dir: e.stdioDir(c.ID), uri: out.URI(), id: c.ID, namespace: e.o.Namespace, stdin: c.Stdin, terminal: terminal(c),
	}
	limited, cancel := context.WithTimeoutCause(ctx, e.timeouts.start, fmt.Errorf("not within %s", e.timeouts.start))
	defer cancel()
	release, err := l.start(limited)
	if err != nil {
		return streams{}, errors.Join(fmt.Errorf("making the pipes for its streams: %w", err), os.RemoveAll(l.dir))
	}
	io := streams{stdout: filepath.Join(l.dir, pipeStdout), release: release}
	if c.Stdin {
		io.stdin = filepath.Join(l.dir, pipeStdin)
	}
	if !l.terminal {
		io.stderr = filepath.Join(l.dir, pipeStderr)
	}
	return io, nil
}

func terminal(c engine.ContainerConfig) bool {
	return c.Spec.Process != nil && c.Spec.Process.Terminal
}

// attachPath is the socket at which the container's streams can be attached to.
func (e *Engine) attachPath(id string) string { return server.AttachSocket(e.o.State, id) }

// stdioDir is the directory of the pipes of a container with a third-party shim.
func (e *Engine) stdioDir(id string) string { return filepath.Join(e.o.State, "stdio", id) }
