package kubelet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/utils/exec"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/serve/kubelet"
)

// stream opens streams at a path, as the API server does, until the server ends them.
func (n *node) stream(ctx context.Context, t *testing.T, path string, query url.Values, s remotecommand.StreamOptions) error {
	t.Helper()
	for name, wanted := range map[string]bool{"input": s.Stdin != nil, "output": s.Stdout != nil, "error": s.Stderr != nil, "tty": s.Tty} {
		if wanted {
			query.Set(name, "1")
		}
	}
	u, err := url.Parse(n.url + path + "?" + query.Encode())
	must(t, err)
	e, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: n.url}, http.MethodPost, u)
	must(t, err)
	return e.StreamWithContext(ctx, s)
}

// TestExec: streams and exit codes of commands.
func TestExec(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	n.start(t, "web", "sleep")
	for name, c := range map[string]struct {
		path, in string
		command  []string
		out, err string
		code     int
	}{
		"output":    {"/exec/default/web/main", "", []string{"box", "echo", "hello"}, "hello", "", 0},
		"with UID":  {"/exec/default/web/uid-web/main", "", []string{"box", "echo", "hello"}, "hello", "", 0},
		"input":     {"/exec/default/web/main", "in ", []string{"box", "echo", "hello"}, "in hello", "", 0},
		"exit code": {"/exec/default/web/main", "", []string{"box", "exit", "7"}, "", "command terminated with exit code 7", 7},
		"not there": {"/exec/default/none/main", "", []string{"box"}, "", `unable to upgrade connection: pod "default/none" does not exist`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := remotecommand.StreamOptions{Stdout: &out}
			if c.in != "" {
				s.Stdin = strings.NewReader(c.in)
			}
			err := n.stream(t.Context(), t, c.path, url.Values{"command": c.command}, s)
			want(t, "output", out.String(), c.out)
			if text := fmt.Sprint(err); (err != nil || c.err != "") && strings.TrimSpace(text) != c.err {
				t.Errorf("%s, want %s", text, c.err)
			}
			var exit exec.ExitError
			if errors.As(err, &exit) {
				want(t, "exit code", exit.ExitStatus(), c.code)
			} else {
				want(t, "exit code", 0, c.code)
			}
		})
	}
}

// TestExecWebSocket: the same for clients that speak no SPDY.
func TestExecWebSocket(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	n.start(t, "web", "sleep")
	d := websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io"}}
	conn, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(n.url, "http")+"/exec/default/web/main?output=1&command=box&command=exit&command=7", nil)
	must(t, err)
	must(t, resp.Body.Close())
	defer func() { _ = conn.Close() }()
	var last string
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			break
		}
		if message[0] == 3 { // the channel of the result
			last = string(message[1:])
		}
	}
	if !strings.Contains(last, `"reason":"ExitCode","message":"7"`) {
		t.Errorf("result %q", last)
	}
}

// TestAttach: input and output of a container itself.
func TestAttach(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	n.start(t, "reads", "listen", func(pod *v1.Pod) {
		pod.Spec.Containers[0].Stdin, pod.Spec.Containers[0].StdinOnce = true, true
	})
	var out bytes.Buffer
	must(t, n.stream(t.Context(), t, "/attach/default/reads/main", url.Values{}, remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out}))
	want(t, "what came back", out.String(), "hello")
	if err := n.stream(t.Context(), t, "/attach/default/reads/main", url.Values{}, remotecommand.StreamOptions{Stdout: &out}); err == nil || !strings.Contains(err.Error(), `container "main" of pod "default/reads" is not running`) {
		t.Errorf("to what has ended: %v", err)
	}
}

// heard is an output that tells of its first bytes.
type heard struct {
	first sync.Once
	begun chan struct{}
}

func (h *heard) Write(data []byte) (int, error) {
	h.first.Do(func() { close(h.begun) })
	return len(data), nil
}

// TestAttachOutput: what a container without an input writes from then on, until it ends.
func TestAttachOutput(t *testing.T) {
	t.Parallel()
	n := serve(t, nil)
	pod := n.start(t, "web", "stay")
	path, err := n.Log(t.Context(), pod, "main", false)
	must(t, err)
	log, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	defer func() { must(t, log.Close()) }()
	out, ended := &heard{begun: make(chan struct{})}, make(chan error, 1)
	go func() {
		ended <- n.stream(t.Context(), t, "/attach/default/web/main", url.Values{}, remotecommand.StreamOptions{Stdout: out})
	}()
	for begun := false; !begun; {
		_, err := fmt.Fprintf(log, "%s stdout F again\n", time.Now().Format(time.RFC3339Nano))
		must(t, err)
		select {
		case <-out.begun:
			begun = true
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	n.end(t, pod, 1)
	must(t, <-ended)
}

// fakeRuntime has commands and connections of the test.
type fakeRuntime struct {
	*node
	exec func(ctx context.Context, s engine.Streams) (int32, error)
	dial func(ctx context.Context, port int32) (net.Conn, error)
}

func (f *fakeRuntime) Exec(ctx context.Context, _ *v1.Pod, _ string, _ runtime.Command, s engine.Streams) (int32, error) {
	return f.exec(ctx, s)
}

func (f *fakeRuntime) Dial(ctx context.Context, _ *v1.Pod, port int32) (net.Conn, error) {
	return f.dial(ctx, port)
}

// serveFake serves a node with a pod web and commands and connections of the test.
func serveFake(t testing.TB) (*node, *fakeRuntime) {
	t.Helper()
	f := &fakeRuntime{}
	n := serve(t, func(o *kubelet.Options) { o.Runtime = f })
	f.node = n
	n.start(t, "web", "sleep")
	return n, f
}

// relay passes one connection on to an address, until it is cut.
func relay(t *testing.T, to string) (address string, cut func()) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
	must(t, err)
	go func() {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(client, server) }()
		_, _ = io.Copy(server, client)
	}()
	return l.Addr().String(), func() { must(t, errors.Join(server.Close(), l.Close())) }
}

// TestClientGone: what is done for a client ends with its connection.
func TestClientGone(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"SPDY", "WebSocket"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			n, f := serveFake(t)
			began, ended := make(chan struct{}), make(chan struct{})
			f.exec = func(ctx context.Context, _ engine.Streams) (int32, error) {
				close(began)
				<-ctx.Done()
				close(ended)
				return 0, ctx.Err()
			}
			address, cut := relay(t, strings.TrimPrefix(n.url, "http://"))
			path := "://" + address + "/exec/default/web/main?output=1&command=hang"
			if protocol == "SPDY" {
				u, err := url.Parse("http" + path)
				must(t, err)
				e, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: address}, http.MethodPost, u)
				must(t, err)
				go func() { _ = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}) }()
			} else {
				d := websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io"}}
				_, resp, err := d.DialContext(t.Context(), "ws"+path, nil)
				must(t, err)
				must(t, resp.Body.Close())
			}
			<-began
			cut()
			<-ended
		})
	}
}

// once has one size of a terminal.
type once struct{ size *remotecommand.TerminalSize }

func (o *once) Next() *remotecommand.TerminalSize {
	size := o.size
	o.size = nil
	return size
}

// TestTerminal: sizes are passed on, and the errors of a terminal are in its output.
func TestTerminal(t *testing.T) {
	t.Parallel()
	n, f := serveFake(t)
	f.exec = func(_ context.Context, s engine.Streams) (int32, error) {
		if !s.TTY || s.Stderr != nil {
			t.Errorf("TTY %t, standard error %v", s.TTY, s.Stderr)
		}
		_, err := fmt.Fprint(s.Stdout, <-s.Resize)
		return 0, err
	}
	var out bytes.Buffer
	must(t, n.stream(t.Context(), t, "/exec/default/web/main", url.Values{"command": {"vi"}}, remotecommand.StreamOptions{
		Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: &once{&remotecommand.TerminalSize{Width: 80, Height: 25}},
	}))
	want(t, "size", out.String(), "{80 25}")
}

// closeWrite ends what is said on a connection.
func closeWrite(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("not TCP: %T", conn)
	}
	return tcp.CloseWrite()
}

// TestPortForward: a port of a pod, through many connections, each with both ends.
func TestPortForward(t *testing.T) {
	t.Parallel()
	n, f := serveFake(t)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				text, _ := io.ReadAll(conn) // up to the half-closed end
				_, _ = fmt.Fprintf(conn, "got %s", text)
				_ = conn.Close()
			}()
		}
	}()
	var d net.Dialer
	f.dial = func(ctx context.Context, port int32) (net.Conn, error) {
		if port != 80 {
			return nil, fmt.Errorf("connection to port %d refused", port)
		}
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: n.url})
	must(t, err)
	u, err := url.Parse(n.url + "/portForward/default/web")
	must(t, err)
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var errs bytes.Buffer
	forwarder, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u), []string{"0:80"}, stop, ready, io.Discard, &errs)
	must(t, err)
	go func() { ended <- forwarder.ForwardPorts() }()
	<-ready
	ports, err := forwarder.GetPorts()
	must(t, err)
	for i := range 5 {
		conn, err := d.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = fmt.Fprintf(conn, "hello %d", i)
		must(t, err)
		must(t, closeWrite(conn))
		text, err := io.ReadAll(conn)
		must(t, errors.Join(err, conn.Close()))
		want(t, "answer", string(text), fmt.Sprintf("got hello %d", i))
	}
	close(stop)
	must(t, <-ended)
	want(t, "errors", errs.String(), "")
}

// FuzzHandshake: whatever a client says, the server goes on.
func FuzzHandshake(f *testing.F) {
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		for _, path := range []string{"exec/default/web/main?command=x&input=1&output=1", "attach/default/web/main?output=1&tty=1", "portForward/default/web?port=80"} {
			f.Add([]byte("GET /" + path + " HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n\x80\x03\x00\x01\x01\x00\x00\x0a\x00\x00\x00\x01"))
		}
	}
	n, fake := serveFake(f)
	fake.exec = func(context.Context, engine.Streams) (int32, error) { return 0, nil }
	fake.dial = func(context.Context, int32) (net.Conn, error) { return nil, errors.New("no port") }
	f.Fuzz(func(t *testing.T, request []byte) {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(n.url, "http://"))
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(time.Second)))
		_, _ = conn.Write(request)
		_ = closeWrite(conn)
		_, _ = conn.Read(make([]byte, 1)) // it has been looked at
		must(t, conn.Close())
		if code, _ := n.get(t, "/healthz"); code != http.StatusOK {
			t.Errorf("after %q: %d", request, code)
		}
	})
}
