package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
)

// LogOptions are virtual-kubelet's api.ContainerLogOpts, which can be converted to it.
type LogOptions struct {
	Tail         int
	LimitBytes   int
	Timestamps   bool
	Follow       bool
	Previous     bool
	SinceSeconds int
	SinceTime    time.Time
}

// read returns the options as package logs has them.
func (o LogOptions) read() logs.Options {
	since := o.SinceTime
	if o.SinceSeconds > 0 {
		since = time.Now().Add(-time.Duration(o.SinceSeconds) * time.Second)
	}
	out := logs.Options{Since: since, Timestamps: o.Timestamps}
	if o.Tail > 0 {
		out.Tail = &o.Tail
	}
	return out
}

// GetContainerLogs returns the log of a container, which the caller has to close.
func (p *Provider) GetContainerLogs(ctx context.Context, namespace, name, container string, o LogOptions) (io.ReadCloser, error) {
	w, err := p.find(namespace, name)
	if err != nil {
		return nil, err
	}
	pod := w.current()
	path, err := p.runtime.Log(ctx, pod, container, o.Previous)
	if err != nil {
		return nil, invalidInput{err}
	}
	r, sink := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	go func() { _ = sink.CloseWithError(p.copyLog(ctx, pod, path, sink, o)) }()
	var text io.Reader = r
	if o.LimitBytes > 0 {
		text = io.LimitReader(r, int64(o.LimitBytes))
	}
	return &logReader{text, r, cancel}, nil
}

// copyLog copies a log, to the container's end if it is to be followed.
func (p *Provider) copyLog(ctx context.Context, pod *v1.Pod, path string, to io.Writer, o LogOptions) error {
	sinks := logs.Sinks{Stdout: to, Stderr: to}
	if o.Follow {
		return p.runtime.FollowLog(ctx, pod, path, sinks, o.read())
	}
	return logs.Read(ctx, path, sinks, o.read())
}

// logReader reads a log that is being copied.
type logReader struct {
	io.Reader
	pipe   *io.PipeReader
	cancel context.CancelFunc
}

// Close ends the copying.
func (r *logReader) Close() error {
	r.cancel()
	return r.pipe.Close()
}

// AttachIO is virtual-kubelet's api.AttachIO, where S is its TermSize.
type AttachIO[S ~struct{ Width, Height uint16 }] interface {
	Stdin() io.Reader
	Stdout() io.WriteCloser
	Stderr() io.WriteCloser
	TTY() bool
	Resize() <-chan S
}

// Streams returns the streams of virtual-kubelet's api.AttachIO, which follow the size of its
// terminal until ctx is done.
func Streams[S ~struct{ Width, Height uint16 }](ctx context.Context, a AttachIO[S]) engine.Streams {
	s := engine.Streams{Stdin: a.Stdin(), Stdout: a.Stdout(), Stderr: a.Stderr(), TTY: a.TTY()}
	if from := a.Resize(); s.TTY && from != nil {
		to := make(chan engine.Size)
		s.Resize = to
		go func() {
			for {
				select {
				case size, ok := <-from:
					if !ok {
						return
					}
					select {
					case to <- engine.Size(size):
					case <-ctx.Done():
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return s
}

// ExitError says that a command has failed. It is an ExitError of k8s.io/utils/exec, from which
// kubectl gets the exit code.
type ExitError struct{ Code int }

func (e ExitError) Error() string { return fmt.Sprintf("command terminated with exit code %d", e.Code) }

func (e ExitError) String() string { return e.Error() }

// Exited is true: the command has ended by itself.
func (ExitError) Exited() bool { return true }

// ExitStatus returns the exit code.
func (e ExitError) ExitStatus() int { return e.Code }

// Command is a command with its streams.
type Command struct {
	Args    []string
	Streams engine.Streams
}

// RunInContainer runs a command in a container, as "kubectl exec" does.
func (p *Provider) RunInContainer(ctx context.Context, namespace, name, container string, c Command) error {
	w, err := p.find(namespace, name)
	if err != nil {
		return err
	}
	code, err := p.runtime.Exec(ctx, w.current(), container, c.Args, c.Streams)
	if err == nil && code != 0 {
		err = ExitError{int(code)}
	}
	return err
}

// AttachToContainer copies what a container writes from now on, until it ends. Its input and its
// terminal cannot be attached.
func (p *Provider) AttachToContainer(ctx context.Context, namespace, name, container string, s engine.Streams) error {
	w, err := p.find(namespace, name)
	if err != nil {
		return err
	}
	if s.Stdin != nil || s.TTY {
		return invalidInput{errors.New("attaching to the input or the terminal of a container is not supported: use exec")}
	}
	pod := w.current()
	path, err := p.runtime.Log(ctx, pod, container, false)
	if err != nil {
		return invalidInput{err}
	}
	return p.runtime.FollowLog(ctx, pod, path, logs.Sinks{Stdout: s.Stdout, Stderr: s.Stderr}, logs.Options{Since: time.Now()})
}

// PortForward connects the stream with a port of the pod, and closes it in the end.
func (p *Provider) PortForward(ctx context.Context, namespace, name string, port int32, stream io.ReadWriteCloser) error {
	defer func() { _ = stream.Close() }()
	w, err := p.find(namespace, name)
	if err != nil {
		return err
	}
	conn, err := p.runtime.Dial(ctx, w.current(), port)
	if err != nil {
		return fmt.Errorf("connecting to port %d of pod %q: %w", port, name, err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, stream)
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
	}()
	_, err = io.Copy(stream, conn)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
