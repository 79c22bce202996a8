package containerd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
)

// pipes are the FIFOs between a command and its streams.
type pipes struct {
	streams               engine.Streams
	dir                   string
	stdin, stdout, stderr string   // paths, empty for none
	in                    *os.File // open for both, so that it exists before and after the command reads it
	outputs               []*output
	running               chan struct{} // closed once the command runs
	closing               chan struct{}
}

// newPipes makes the FIFOs in a new directory below parent. The command has one output or two.
func newPipes(parent string, s engine.Streams, oneOutput bool) (*pipes, error) {
	p := &pipes{streams: s, running: make(chan struct{}), closing: make(chan struct{})}
	err := p.open(parent, oneOutput)
	if err != nil {
		p.close()
		return nil, fmt.Errorf("making a pipe for its output: %w", err)
	}
	return p, nil
}

func (p *pipes) open(parent string, oneOutput bool) (err error) {
	if p.dir, err = process.TempDir(parent); err != nil {
		return err
	}
	if p.stdout, err = p.output("out", p.streams.Stdout); err != nil {
		return err
	}
	switch {
	case !oneOutput:
		if p.stderr, err = p.output("err", p.streams.Stderr); err != nil {
			return err
		}
	case !p.streams.TTY:
		p.stderr = p.stdout
	}
	if p.streams.Stdin == nil {
		return nil
	}
	p.stdin = filepath.Join(p.dir, "in")
	if err = syscall.Mkfifo(p.stdin, 0o600); err == nil {
		p.in, err = os.OpenFile(p.stdin, os.O_RDWR|syscall.O_NONBLOCK, 0)
	}
	return err
}

// output is a FIFO that is read to its end, so that the command never blocks on a full pipe.
type output struct {
	held *os.File // write end, which keeps the FIFO open until the command has it
	read *os.File
	done chan struct{}
}

// output makes a FIFO, whose content is written to the sink, if there is one.
func (p *pipes) output(name string, sink io.Writer) (path string, err error) {
	path = filepath.Join(p.dir, name)
	o := &output{done: make(chan struct{})}
	if err = syscall.Mkfifo(path, 0o600); err == nil {
		o.read, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	if err != nil {
		return "", err
	}
	if o.held, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err != nil {
		_ = o.read.Close()
		return "", err
	}
	p.outputs = append(p.outputs, o)
	go func() {
		defer close(o.done)
		select {
		case <-p.running:
			if sink != nil {
				_, _ = io.Copy(sink, o.read) // one that cannot be written to must not stop the command
			}
		case <-p.closing: // what an OCI runtime has written there is in its error
		}
		_, _ = io.Copy(io.Discard, o.read)
	}()
	return path, nil
}

// release lets the outputs end with the command.
func (p *pipes) release() {
	for _, o := range p.outputs {
		_ = o.held.Close()
	}
}

// begin copies the output of the command, and its input, and sets the size of its terminal, until ctx is done.
func (p *pipes) begin(ctx context.Context, x command) {
	close(p.running)
	if p.in != nil {
		go func() {
			_, err := io.Copy(p.in, p.streams.Stdin)
			if err == nil && !p.streams.TTY { // the end of a terminal's input is a character
				_ = p.in.Close()
				_, _ = x.tasks.CloseIO(ctx, &tasksapi.CloseIORequest{ContainerID: x.container, ExecID: x.id, Stdin: true})
			}
		}()
	}
	if p.streams.Resize == nil {
		return
	}
	go eachSize(ctx, p.streams.Resize, func(size engine.Size) {
		_, _ = x.tasks.ResizePty(ctx, &tasksapi.ResizePtyRequest{
			ContainerID: x.container, ExecID: x.id, Width: uint32(size.Width), Height: uint32(size.Height),
		})
	})
}

// wait waits for the rest of the output of a command that has ended, until ctx is done at the latest.
func (p *pipes) wait(ctx context.Context) {
	for _, o := range p.outputs {
		limited, cancel := context.WithTimeout(ctx, execDrain)
		select {
		case <-o.done:
		case <-limited.Done():
			// A pending read returns with what it has.
			_ = o.read.SetReadDeadline(time.Now())
			<-o.done
		}
		cancel()
	}
}

// close removes the FIFOs.
func (p *pipes) close() {
	close(p.closing)
	p.release()
	for _, o := range p.outputs {
		_ = o.read.SetReadDeadline(time.Now())
		<-o.done
		_ = o.read.Close()
	}
	if p.in != nil {
		_ = p.in.Close()
	}
	_ = os.RemoveAll(p.dir)
}
