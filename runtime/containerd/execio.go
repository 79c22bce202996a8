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

// stdio are the paths of a command's FIFOs, empty for none.
type stdio struct {
	stdin, stdout, stderr string
	terminal              bool
	release               func() // called after the attempt to start it
	started               func() // called when it has been started; may be nil
}

// run starts the command and waits for its end. When ctx ends first the command is killed, but
// its start is not interrupted: a runtime that is killed meanwhile may leave a process that
// nobody knows.
func (x command) run(ctx context.Context, process typeurl.Any, io stdio) (int32, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), execStartTimeout)
	defer cancel()
	_, err := x.tasks.Exec(starting, &tasksapi.ExecProcessRequest{
		ContainerID: x.container, ExecID: x.id, Spec: typeurl.MarshalProto(process),
		Stdin: io.stdin, Stdout: io.stdout, Stderr: io.stderr, Terminal: io.terminal,
	})
	if err != nil {
		return 0, errs.Native(err)
	}
	defer x.remove(ctx)
	_, err = x.tasks.Start(starting, &tasksapi.StartRequest{ContainerID: x.container, ExecID: x.id})
	io.release()
	if err != nil {
		return 0, errs.Native(err)
	}
	if io.started != nil {
		io.started()
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

// execDir makes a new directory below parent for the FIFOs of a command. fill makes them: first
// that which shows that the directory is in use.
func execDir(parent string, fill func(dir string) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("making a pipe for its output: %w", err)
		}
	}()
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	lock, err := flock.Open(parent, syscall.LOCK_SH) // against sweepCaptures
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		return err
	}
	return fill(dir)
}

// output is a FIFO that is read to its end, so that the command never blocks on a full pipe.
type output struct {
	path string
	held *os.File // write end, which keeps the FIFO open until the command has it
	read *os.File
	done chan struct{}
}

// newOutput makes a FIFO, whose content is passed to keep as long as that wants it.
func newOutput(path string, keep func(io.Reader)) (*output, error) {
	o := &output{path: path, done: make(chan struct{})}
	err := syscall.Mkfifo(path, 0o600)
	if err == nil {
		o.read, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, err
	}
	if o.held, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err != nil {
		_ = o.read.Close()
		return nil, err
	}
	go func() {
		defer close(o.done)
		keep(o.read)
		_, _ = io.Copy(io.Discard, o.read)
	}()
	return o, nil
}

// release lets the pipe end with the command.
func (o *output) release() {
	if o.held != nil {
		_ = o.held.Close()
		o.held = nil
	}
}

// wait waits for the end of the output, but not longer than the time given.
func (o *output) wait(most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-o.done:
	case <-t.C:
		// A pending read returns with what it has.
		_ = o.read.SetReadDeadline(time.Now())
		<-o.done
	}
}

func (o *output) close() {
	o.release()
	_ = o.read.SetReadDeadline(time.Now())
	<-o.done
	_ = o.read.Close()
}

// capture keeps the beginning of what is written to a FIFO.
type capture struct {
	*output
	kept []byte
}

// newCapture makes a FIFO in a new directory below parent.
func newCapture(parent string) (*capture, error) {
	c := &capture{}
	err := execDir(parent, func(dir string) (err error) {
		c.output, err = newOutput(filepath.Join(dir, captureName), func(r io.Reader) {
			c.kept, _ = io.ReadAll(io.LimitReader(r, engine.MaxExecOutput))
		})
		if err != nil {
			_ = os.RemoveAll(dir)
		}
		return err
	})
	return c, err
}

// close removes the FIFO.
func (c *capture) close() {
	c.output.close()
	_ = os.RemoveAll(filepath.Dir(c.path))
}
