package containerd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/typeurl/v2"

	"github.com/runonce/runonce/runtime/containerd/errs"
)

const (
	// execStartTimeout bounds the start of a command, whatever its own time limit is.
	execStartTimeout = time.Minute
	// execDrain bounds the wait for the rest of a command's output after its end: a child
	// process that it left may hold the pipe.
	execDrain = 5 * time.Second
)

// command is one command in one container.
type command struct {
	tasks     tasksapi.TasksClient
	container string
	id        string // unique in the container
}

// run starts the command and waits for its end. When ctx ends first the command is killed, but
// its start is not interrupted: a runtime that is killed meanwhile may leave a process that
// nobody knows.
func (x command) run(ctx context.Context, process typeurl.Any, out *capture) (int32, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), execStartTimeout)
	defer cancel()
	_, err := x.tasks.Exec(starting, &tasksapi.ExecProcessRequest{
		ContainerID: x.container, ExecID: x.id, Spec: typeurl.MarshalProto(process), Stdout: out.path, Stderr: out.path,
	})
	if err != nil {
		return 0, errs.Native(err)
	}
	defer x.remove(ctx)
	_, err = x.tasks.Start(starting, &tasksapi.StartRequest{ContainerID: x.container, ExecID: x.id})
	out.release()
	if err != nil {
		return 0, errs.Native(err)
	}
	resp, err := x.tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: x.container, ExecID: x.id})
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, errs.Native(err)
	}
	return int32(resp.ExitStatus), nil
}

// remove kills the command if it still runs, and deletes it.
func (x command) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	del := &tasksapi.DeleteProcessRequest{ContainerID: x.container, ExecID: x.id}
	if _, err := x.tasks.DeleteProcess(ctx, del); errs.IgnoreNotFound(err) == nil {
		return
	}
	_, err := x.tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: x.container, ExecID: x.id, Signal: uint32(syscall.SIGKILL)})
	if errs.IgnoreNotFound(err) == nil {
		_, _ = x.tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: x.container, ExecID: x.id})
	}
	// What is left is removed with the container.
	_, _ = x.tasks.DeleteProcess(ctx, del)
}

// capture keeps the beginning of what is written to a FIFO.
type capture struct {
	path string
	dir  string
	held *os.File // write end, which keeps the FIFO open until the command has it
	read *os.File
	done chan struct{}
	kept []byte
}

// newCapture makes a FIFO in a new directory below parent.
func newCapture(parent string) (*capture, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("making a pipe for its output: %w", err)
	}
	lock, err := flock.Open(parent, syscall.LOCK_SH) // against sweepCaptures
	if err != nil {
		return nil, fmt.Errorf("making a pipe for its output: %w", err)
	}
	defer func() { _ = lock.Close() }()
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, fmt.Errorf("making a pipe for its output: %w", err)
	}
	c := &capture{dir: dir, path: filepath.Join(dir, captureName), done: make(chan struct{})}
	if err = syscall.Mkfifo(c.path, 0o600); err == nil {
		if c.read, err = os.OpenFile(c.path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			c.held, err = os.OpenFile(c.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		}
	}
	if err != nil {
		close(c.done)
		c.close()
		return nil, fmt.Errorf("making a pipe for its output: %w", err)
	}
	go c.copy()
	return c, nil
}

// copy reads to the end, so that the command never blocks on a full pipe.
func (c *capture) copy() {
	defer close(c.done)
	kept, _ := io.ReadAll(io.LimitReader(c.read, engine.MaxExecOutput))
	c.kept = kept
	_, _ = io.Copy(io.Discard, c.read)
}

// release lets the pipe end with the command.
func (c *capture) release() {
	if c.held != nil {
		_ = c.held.Close()
		c.held = nil
	}
}

// wait returns the output once it has ended, or what was read of it after the time given.
func (c *capture) wait(most time.Duration) []byte {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		// A pending read returns with what it has.
		_ = c.read.SetReadDeadline(time.Now())
		<-c.done
	}
	return c.kept
}

// close removes the FIFO.
func (c *capture) close() {
	c.release()
	if c.read != nil {
		_ = c.read.SetReadDeadline(time.Now())
		<-c.done
		_ = c.read.Close()
	}
	_ = os.RemoveAll(c.dir)
}
