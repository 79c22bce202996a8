package portforward_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runonce/runonce/internal/portforward"
)

func TestParse(t *testing.T) {
	t.Parallel()
	same, number := portforward.SamePort, intstr.FromInt32
	for text, want := range map[string]portforward.Mapping{
		"8080":                {Local: same, Remote: number(8080)},
		"http":                {Local: same, Remote: intstr.FromString("http")},
		"8080:80":             {Local: 8080, Remote: number(80)},
		"8080:http":           {Local: 8080, Remote: intstr.FromString("http")},
		":80":                 {Remote: number(80)},
		"0:80":                {Remote: number(80)},
		"127.0.0.1:8080":      {Address: "127.0.0.1", Local: same, Remote: number(8080)},
		"0.0.0.0:8080:http":   {Address: "0.0.0.0", Local: 8080, Remote: intstr.FromString("http")},
		"0.0.0.0::80":         {Address: "0.0.0.0", Remote: number(80)},
		"localhost:0:80":      {Address: "localhost", Remote: number(80)},
		"[::1]:8080":          {Address: "::1", Local: same, Remote: number(8080)},
		"[fd00::1]:8080:80":   {Address: "fd00::1", Local: 8080, Remote: number(80)},
		"[::]:8080:web-admin": {Address: "::", Local: 8080, Remote: intstr.FromString("web-admin")},
	} {
		got, err := portforward.Parse(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
	for text, want := range map[string]string{
		"":               `port ""`,
		"0":              "a number from 1",
		":":              `port ""`,
		":0":             "a number from 1",
		"65536":          "to 65535",
		"8080:":          `port ""`,
		"-1:80":          "a number from 0",
		"8080:80:90":     `address "8080": must be an IP address`,
		":8080:80":       "empty address",
		"example:8080":   `address "example"`,
		"::1:8080:80":    "with an IPv6 address in brackets",
		"[::1]8080":      "must begin with an IPv6 address",
		"[host]:8080":    "must begin with an IPv6 address",
		"http:80":        `address "http"`,
		"8080:two words": `port "two words"`,
	} {
		if got, err := portforward.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want an error with %q", text, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"8080", "[::1]:8080:80", ":80", "0.0.0.0:1:http"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := portforward.Parse(text)
		if err == nil && (m.Local < portforward.SamePort || m.Local > 65535 || m.Remote.Type == intstr.Int && (m.Remote.IntVal < 1 || m.Remote.IntVal > 65535)) {
			t.Errorf("%q: %+v", text, m)
		}
	})
}

// server is a destination on this machine that has each connection served by a function.
type server struct {
	port   int32
	lost   atomic.Pointer[error]
	dialed atomic.Int32
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func portOf(l net.Listener) int32 {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return int32(a.Port)
	}
	return 0
}

func newServer(t *testing.T, serve func(net.Conn)) *server {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return &server{port: portOf(l)}
}

func (s *server) Dial(ctx context.Context, port int32) (io.ReadWriteCloser, error) {
	s.dialed.Add(1)
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

func (s *server) Port(remote intstr.IntOrString) (int32, error) { return remote.IntVal, nil }

func (s *server) Lost(context.Context) error {
	if err := s.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// serve forwards any free port to the server until the test ends, and returns its address and, when it has ended, the
// error.
func serve(t *testing.T, s portforward.Destination, port int32, failed func(portforward.Listener, error)) (address string, ended <-chan error) {
	t.Helper()
	target := portforward.Target{Mapping: portforward.Mapping{Address: "127.0.0.1"}, Port: port}
	listeners, err := portforward.Listen(t.Context(), []portforward.Target{target}, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- portforward.Serve(t.Context(), listeners, s, failed) }()
	return listeners[0].Addr().String(), done
}

func noFailure(t *testing.T) func(portforward.Listener, error) {
	t.Helper()
	return func(_ portforward.Listener, err error) { t.Error(err) }
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	half, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("connected by a %T", conn)
	}
	return half
}

// TestHalfClose: a server that answers when its client has said all gets to know that, and can still answer.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToUpper(all))
		_ = c.Close()
	})
	address, _ := serve(t, s, s.port, noFailure(t))
	var clients sync.WaitGroup
	for i := range 50 {
		clients.Go(func() {
			conn := dial(t, address)
			text := strings.Repeat("a", 10_000*i)
			go func() {
				_, _ = io.WriteString(conn, text)
				_ = conn.CloseWrite()
			}()
			if got, err := io.ReadAll(conn); err != nil || string(got) != strings.ToUpper(text) {
				t.Errorf("client %d: got %d bytes, %v", i, len(got), err)
			}
		})
	}
	clients.Wait()
}

// TestServerEndsFirst: what a server sends before it closes the connection arrives, and then the client gets its end
// although it has said nothing.
func TestServerEndsFirst(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "hello")
		_ = c.Close()
	})
	address, _ := serve(t, s, s.port, noFailure(t))
	if got, err := io.ReadAll(dial(t, address)); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestRefused: a connection that the destination refuses is closed and reported, and the next one works.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c net.Conn) { _ = c.Close() })
	failures := make(chan error, 1)
	address, _ := serve(t, s, 1, func(_ portforward.Listener, err error) { failures <- err })
	if got, err := io.ReadAll(dial(t, address)); len(got) != 0 || err != nil && !errors.As(err, new(*net.OpError)) {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-failures; !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// failing is a connection that fails when the other side has ended, as one to a kubelet that could not connect does.
type failing struct{ io.ReadWriteCloser }

func (f failing) Read(b []byte) (int, error) {
	n, err := f.ReadWriteCloser.Read(b)
	if errors.Is(err, io.EOF) {
		err = errors.New("connection refused")
	}
	return n, err
}

type failingServer struct{ *server }

func (s failingServer) Dial(ctx context.Context, port int32) (io.ReadWriteCloser, error) {
	conn, err := s.server.Dial(ctx, port)
	return failing{conn}, err
}

// TestFailsLater: that a connection fails once it is there is reported as well.
func TestFailsLater(t *testing.T) {
	t.Parallel()
	s := failingServer{newServer(t, func(c net.Conn) { _ = c.Close() })}
	failures := make(chan error, 1)
	address, _ := serve(t, s, s.port, func(_ portforward.Listener, err error) { failures <- err })
	_, _ = io.ReadAll(dial(t, address))
	if err := <-failures; !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// TestLost: once the destination is lost, its connections and the listener are closed.
func TestLost(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	address, ended := serve(t, s, s.port, noFailure(t))
	conn := dial(t, address)
	lost := errors.New("the pod has ended")
	s.lost.Store(&lost)
	if err := <-ended; !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
	if _, err := io.ReadAll(conn); err != nil && !errors.As(err, new(*net.OpError)) {
		t.Error(err)
	}
	if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
		_ = c.Close()
		t.Error("still listens")
	}
}

// TestListenAll: either all ports are listened to, or none.
func TestListenAll(t *testing.T) {
	t.Parallel()
	port := int(portOf(listen(t)))
	free := portforward.Target{Port: 80}
	_, err := portforward.Listen(t.Context(), []portforward.Target{free, {Mapping: portforward.Mapping{Local: port}, Port: 80}}, []string{portforward.Localhost})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
	listeners, err := portforward.Listen(t.Context(), []portforward.Target{free}, []string{portforward.Localhost})
	if err != nil {
		t.Fatal(err)
	}
	first := portOf(listeners[0])
	for _, l := range listeners {
		if got := portOf(l); got != first {
			t.Errorf("port %d on %s, %d on the first address", got, l.Addr(), first)
		}
		_ = l.Close()
	}
}
