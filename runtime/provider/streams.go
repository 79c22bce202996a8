package provider

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/exec"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
)

// readOptions returns the options as package logs has them.
func readOptions(o api.ContainerLogOpts) logs.Options {
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
func (p *Provider) GetContainerLogs(ctx context.Context, namespace, name, container string, o api.ContainerLogOpts) (io.ReadCloser, error) {
	w, err := p.find(namespace, name)
	if err != nil {
		return nil, err
	}
	pod := w.current()
	path, err := p.runtime.Log(ctx, pod, container, o.Previous)
	if err != nil {
		return nil, errdefs.AsInvalidInput(err)
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
func (p *Provider) copyLog(ctx context.Context, pod *v1.Pod, path string, to io.Writer, o api.ContainerLogOpts) error {
	sinks := logs.Sinks{Stdout: to, Stderr: to}
	if o.Follow {
		return p.runtime.FollowLog(ctx, pod, runtime.FollowedLog{Path: path}, sinks, readOptions(o))
	}
	return logs.Read(ctx, path, sinks, readOptions(o))
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

// streams returns the streams for the engine, which follow the size of the terminal until ctx is done.
func streams(ctx context.Context, a api.AttachIO) engine.Streams {
	s := engine.Streams{Stdin: a.Stdin(), TTY: a.TTY()}
	if w := a.Stdout(); w != nil {
		s.Stdout = w
	}
	if w := a.Stderr(); w != nil {
		s.Stderr = w
	}
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

// runInContainer runs a command in a container, as "kubectl exec" does.
func (p *Provider) runInContainer(ctx context.Context, of target, command []string, a api.AttachIO) error {
	w, err := p.find(of.namespace, of.pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	code, err := p.runtime.Exec(ctx, w.current(), of.container, runtime.Command{Args: command}, streams(ctx, a))
	if err == nil && code != 0 {
		// kubectl gets the exit code from it.
		err = exec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: int(code)}
	}
	return err
}

// AttachToContainer takes part in the input and the output of a container, until it ends.
func (p *Provider) AttachToContainer(ctx context.Context, namespace, name, container string, a api.AttachIO) error {
	w, err := p.find(namespace, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err = p.runtime.Attach(ctx, w.current(), container, streams(ctx, a))
	return err
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
