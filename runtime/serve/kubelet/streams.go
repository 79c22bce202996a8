package kubelet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
)

const (
	// idleTimeout is how long a connection with streams may have nothing to say, as in the kubelet
	// (streamingConnectionIdleTimeout).
	idleTimeout = 4 * time.Hour
	// creationTimeout is how long a client may take to open its streams, as in the kubelet.
	creationTimeout = 30 * time.Second
)

// session is what happens between a client's streams and a container.
type session func(ctx context.Context, s engine.Streams) error

// ExecInContainer implements remotecommand.Executor.
func (do session) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return do.AttachContainer(ctx, "", "", "", in, out, errs, tty, resize)
}

// AttachContainer implements remotecommand.Attacher.
func (do session) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := engine.Streams{Stdin: in, TTY: tty}
	if out != nil {
		s.Stdout = out
	}
	if errs != nil {
		s.Stderr = errs
	}
	if tty && resize != nil {
		s.Resize = sizes(ctx, resize)
	}
	return do(ctx, s)
}

// sizes passes on sizes of a terminal until ctx is done.
func sizes(ctx context.Context, from <-chan remotecommand.TerminalSize) <-chan engine.Size {
	to := make(chan engine.Size)
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
	return to
}

// exec answers with a command in a container.
func (s *server) exec(w http.ResponseWriter, r *http.Request) {
	pod, container, ok := s.container(w, r)
	if !ok {
		return
	}
	command := runtime.Command{Args: r.URL.Query()["command"]}
	if len(command.Args) == 0 {
		s.fail(w, r, http.StatusBadRequest, fmt.Errorf("you must specify the command to run in container %q", container))
		return
	}
	do := session(func(ctx context.Context, streams engine.Streams) error {
		code, err := s.Runtime.Exec(ctx, pod, container, command, streams)
		if err == nil && code != 0 {
			// The client gets the exit code from it.
			err = exec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: int(code)}
		}
		return err
	})
	s.stream(w, r, func(w http.ResponseWriter, r *http.Request, o *remotecommand.Options) {
		remotecommand.ServeExec(w, r, do, pod.Name, string(pod.UID), container, command.Args, o, idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
	})
}

// attach answers with the input and the output of a container, until it ends.
func (s *server) attach(w http.ResponseWriter, r *http.Request) {
	pod, container, ok := s.container(w, r)
	if !ok {
		return
	}
	do := session(func(ctx context.Context, streams engine.Streams) error {
		_, err := s.Runtime.Attach(ctx, pod, container, streams)
		return err
	})
	s.stream(w, r, func(w http.ResponseWriter, r *http.Request, o *remotecommand.Options) {
		remotecommand.ServeAttach(w, r, do, pod.Name, string(pod.UID), container, o, idleTimeout, creationTimeout, remotecommand.SupportedStreamingProtocols)
	})
}

// stream has a request served that asks for streams.
func (s *server) stream(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request, *remotecommand.Options)) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		s.fail(w, r, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	serve(watched{w, cancel}, r.WithContext(ctx), o)
}

// forwarder connects a stream with a port.
type forwarder func(port int32, stream io.ReadWriteCloser) error

// PortForward implements portforward.PortForwarder, which has no context of the request.
func (f forwarder) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	return f(port, stream)
}

// portForward answers with connections to ports of a pod.
func (s *server) portForward(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.pod(w, r)
	if !ok {
		return
	}
	o, err := portforward.NewV4Options(r)
	if err != nil {
		s.fail(w, r, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f := forwarder(func(port int32, stream io.ReadWriteCloser) error {
		conn, err := s.Runtime.Dial(ctx, pod, port)
		if err != nil {
			_ = stream.Close()
			return fmt.Errorf("connecting to port %d: %w", port, err)
		}
		return forward(ctx, conn, stream)
	})
	portforward.ServePortForward(watched{w, cancel}, r.WithContext(ctx), f, pod.Name, string(pod.UID), o, idleTimeout, creationTimeout, portforward.SupportedProtocols)
}

// forward copies between the two until the pod has said all, or the client is gone, and closes them. What the client
// has said ends for the pod when it ends.
func forward(ctx context.Context, conn net.Conn, stream io.ReadWriteCloser) error {
	defer func() { _, _ = conn.Close(), stream.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, stream)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	if _, err := io.Copy(stream, conn); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// watched is a response that ends what is done for the client when the client's connection ends: once it is hijacked,
// nobody else does.
type watched struct {
	http.ResponseWriter
	end context.CancelFunc
}

// Hijack implements http.Hijacker.
func (w watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c := &watchedConn{conn, buffered.Reader, w.end}
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

// watchedConn calls end when nothing can be read any more.
type watchedConn struct {
	net.Conn
	from *bufio.Reader
	end  context.CancelFunc
}

func (c *watchedConn) Read(data []byte) (int, error) {
	n, err := c.from.Read(data)
	if err != nil {
		c.end()
	}
	return n, err
}
