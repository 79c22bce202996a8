package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/runonce/runonce/runtime/engine"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
)

// errLost is the error of a command whose end nobody has seen.
var errLost = errors.New("the connection to containerd was lost while it ran")

// ExecStreams runs a command inside the container, with streams.
func (e *Engine) ExecStreams(ctx context.Context, id string, args []string, s engine.Streams) (int32, error) {
	if len(args) == 0 {
		return 0, fmt.Errorf("running a command in container %q: there is none", id)
	}
	var code int32
	begun := false
	err := e.do(ctx, func(ctx context.Context, ses *session) (err error) {
		if begun {
			return errLost
		}
		process, err := execProcess(ctx, ses, id, args, s.TTY)
		if err != nil {
			return err
		}
		begun = true
		pipes, err := newPipes(e.execDir(), s)
		if err != nil {
			return err
		}
		defer pipes.close()
		x := newCommand(ses, id)
		streaming, cancel := context.WithCancel(ctx)
		defer cancel()
		io := pipes.stdio()
		io.started = func() { pipes.begin(streaming, x) }
		if code, err = x.run(ctx, process, io); err != nil {
			return execError(ctx, err, args)
		}
		pipes.wait()
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("running %q in container %q: %w", args[0], id, err)
	}
	return code, nil
}

// pipes are the FIFOs between a command and its streams.
type pipes struct {
	dir     string
	streams engine.Streams
	in      *os.File // open for both, so that it exists before and after the command reads it
	outputs []*output
}

func newPipes(parent string, s engine.Streams) (*pipes, error) {
	p := &pipes{streams: s}
	err := execDir(parent, func(dir string) error {
		p.dir = dir
		sinks := map[string]io.Writer{captureName: s.Stdout}
		if !s.TTY {
			sinks["err"] = s.Stderr
		}
		for _, name := range []string{captureName, "err"} {
			sink, ok := sinks[name]
			if !ok {
				continue
			}
			o, err := newOutput(filepath.Join(dir, name), func(r io.Reader) {
				if sink != nil {
					_, _ = io.Copy(sink, r) // one that cannot be written to must not stop the command
				}
			})
			if err != nil {
				return err
			}
			p.outputs = append(p.outputs, o)
		}
		if s.Stdin == nil {
			return nil
		}
		path := filepath.Join(dir, "in")
		err := syscall.Mkfifo(path, 0o600)
		if err == nil {
			p.in, err = os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
		}
		return err
	})
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pipes) stdio() stdio {
	all := stdio{stdout: p.outputs[0].path, terminal: p.streams.TTY, release: func() {
		for _, o := range p.outputs {
			o.release()
		}
	}}
	if len(p.outputs) > 1 {
		all.stderr = p.outputs[1].path
	}
	if p.in != nil {
		all.stdin = p.in.Name()
	}
	return all
}

// begin copies the input to the command, and sets the size of its terminal, until ctx is done.
func (p *pipes) begin(ctx context.Context, x command) {
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
	go func() {
		for {
			select {
			case size, ok := <-p.streams.Resize:
				if !ok {
					return
				}
				_, _ = x.tasks.ResizePty(ctx, &tasksapi.ResizePtyRequest{
					ContainerID: x.container, ExecID: x.id, Width: uint32(size.Width), Height: uint32(size.Height),
				})
			case <-ctx.Done():
				return
			}
		}
	}()
}

// wait waits for the rest of the output of a command that has ended.
func (p *pipes) wait() {
	for _, o := range p.outputs {
		o.wait(execDrain)
	}
}

// close removes the FIFOs.
func (p *pipes) close() {
	for _, o := range p.outputs {
		o.close()
	}
	if p.in != nil {
		_ = p.in.Close()
	}
	_ = os.RemoveAll(p.dir)
}
