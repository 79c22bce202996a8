package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

// The names of the pipes in a logger's directory.
const (
	pipeStdin  = "stdin"
	pipeStdout = "stdout"
	pipeStderr = "stderr"
)

// logger is the process that reads the output of a container of a third-party shim from
// pipes, and holds its input open although nobody writes to it. It ends with the output.
type logger struct {
	program   string
	dir       string // of the pipes, which start makes
	uri       string // of the protocol.Output
	id        string
	namespace string
	stdin     bool
	terminal  bool // there is no stderr
}

// start makes the pipes, starts the process and returns once it reads. If it does not until ctx is
// done, it is killed. The caller calls release when the shim has opened the pipes.
func (l logger) start(ctx context.Context) (release func(), err error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	// What the process inherits, and the ends that keep the pipes open until the shim opens them.
	var theirs, held []*os.File
	defer func() { closeAll(theirs) }()
	defer func() {
		if err != nil {
			closeAll(held)
		}
	}()
	for _, name := range []string{pipeStdout, pipeStderr} {
		r, w, err := l.open(name)
		if err != nil {
			return nil, err
		}
		theirs, held = append(theirs, r), append(held, w)
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ready.Close() }()
	theirs = append(theirs, tell)
	if l.stdin {
		in, err := l.fifo(pipeStdin, os.O_RDWR)
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, in)
	}
	started, err := l.run(ctx, theirs)
	if err != nil {
		return nil, err
	}
	closeAll(theirs)
	theirs = nil
	if err := awaitReady(ctx, ready); err != nil {
		_ = started.Kill() // unless it has ended
		return nil, fmt.Errorf("starting the logger: %w", err)
	}
	return func() { closeAll(held) }, nil
}

// awaitReady waits for the byte with which a logger says that it reads.
func awaitReady(ctx context.Context, ready *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Now()) })
	defer stop()
	n, err := ready.Read(make([]byte, 1))
	switch {
	case n > 0:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("waiting until it is ready: %w", context.Cause(ctx))
	}
	return fmt.Errorf("it has exited: %w", err)
}

// open makes a pipe for output. A terminal has no stderr, which then is empty.
func (l logger) open(name string) (r, w *os.File, err error) {
	if name == pipeStderr && l.terminal {
		r, err = os.Open(os.DevNull)
		return r, nil, err
	}
	if r, err = l.fifo(name, os.O_RDONLY|syscall.O_NONBLOCK); err != nil {
		return nil, nil, err
	}
	if w, err = l.fifo(name, os.O_WRONLY); err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return r, w, nil
}

func (l logger) fifo(name string, flags int) (*os.File, error) {
	path := filepath.Join(l.dir, name)
	if err := syscall.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making pipe %q: %w", path, err)
	}
	return os.OpenFile(path, flags, 0)
}

// run starts the process as a shim would (core/runtime/v2/logging). It outlives this
// program.
func (l logger) run(ctx context.Context, files []*os.File) (*os.Process, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), l.program, protocol.LoggerArg, l.uri)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + protocol.SearchPath, "CONTAINER_ID=" + l.id, "CONTAINER_NAMESPACE=" + l.namespace}
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the logger: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return cmd.Process, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
