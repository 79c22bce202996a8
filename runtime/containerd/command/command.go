// Package command runs commands inside containers.
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/typeurl/v2"

	"github.com/runonce/runonce/runtime/containerd/errs"
)

const (
	// startTimeout bounds the start of a command, whatever its own time is.
	startTimeout = time.Minute
	// removeTimeout bounds the end of a command whose time is over.
	removeTimeout = 20 * time.Second
)

// Command is one command in one container.
type Command struct {
	Tasks     tasksapi.TasksClient
	Container string
	ID        string // unique in the container
}

// Run starts the command and waits for its end. When ctx ends first it is killed. The start
// itself is not cut short: a runtime that is killed in it may leave a process that nobody
// knows.
func (x Command) Run(ctx context.Context, process typeurl.Any, out *Capture) (int32, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	_, err := x.Tasks.Exec(starting, &tasksapi.ExecProcessRequest{
		ContainerID: x.Container, ExecID: x.ID, Spec: typeurl.MarshalProto(process), Stdout: out.path, Stderr: out.path,
	})
	if err != nil {
		return 0, errs.Native(err)
	}
	defer x.remove(ctx)
	_, err = x.Tasks.Start(starting, &tasksapi.StartRequest{ContainerID: x.Container, ExecID: x.ID})
	out.release()
	if err != nil {
		return 0, errs.Native(err)
	}
	resp, err := x.Tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: x.Container, ExecID: x.ID})
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, errs.Native(err)
	}
	return int32(resp.ExitStatus), nil
}

// remove kills the command if it still runs, and deletes it.
func (x Command) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	del := &tasksapi.DeleteProcessRequest{ContainerID: x.Container, ExecID: x.ID}
	if _, err := x.Tasks.DeleteProcess(ctx, del); errs.IgnoreNotFound(err) == nil {
		return
	}
	_, err := x.Tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: x.Container, ExecID: x.ID, Signal: uint32(syscall.SIGKILL)})
	if errs.IgnoreNotFound(err) == nil {
		_, _ = x.Tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: x.Container, ExecID: x.ID})
	}
	// Whatever is left goes with the container.
	_, _ = x.Tasks.DeleteProcess(ctx, del)
}

// Capture keeps the beginning of what is written to a FIFO.
type Capture struct {
	path string
	dir  string
	held *os.File
	read *os.File
	done chan struct{}
	kept []byte
}

// NewCapture makes a FIFO in a new directory below parent.
func NewCapture(parent string) (*Capture, error) {
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("making a pipe for its output: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, fmt.Errorf("making a pipe for its output: %w", err)
	}
	c := &Capture{dir: dir, path: filepath.Join(dir, "out"), done: make(chan struct{})}
	if err = syscall.Mkfifo(c.path, 0o600); err == nil {
		if c.read, err = os.OpenFile(c.path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			c.held, err = os.OpenFile(c.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		}
	}
	if err != nil {
		close(c.done)
		c.Close()
		return nil, fmt.Errorf("making a pipe for its output: %w", err)
	}
	go c.copy()
	return c, nil
}

// copy reads to the end, so that the command never blocks on a full pipe.
func (c *Capture) copy() {
	defer close(c.done)
	kept, _ := io.ReadAll(io.LimitReader(c.read, engine.MaxExecOutput))
	c.kept = kept
	_, _ = io.Copy(io.Discard, c.read)
}

// release lets the pipe end with the command.
func (c *Capture) release() {
	if c.held != nil {
		_ = c.held.Close()
		c.held = nil
	}
}

// Wait returns the output once it has ended, or after the time given what there is.
func (c *Capture) Wait(most time.Duration) []byte {
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

// Close removes the FIFO.
func (c *Capture) Close() {
	c.release()
	if c.read != nil {
		_ = c.read.SetReadDeadline(time.Now())
		<-c.done
		_ = c.read.Close()
	}
	_ = os.RemoveAll(c.dir)
}
