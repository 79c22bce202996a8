package ttrpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	eventsttrpc "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	lib "github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// serve serves the handler, and returns a connection to it.
func serve(t *testing.T, s *Server) net.Conn {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Idle == nil {
		s.Idle = func() {}
	}
	served := make(chan error)
	go func() { served <- s.Serve(context.Background(), l) }()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// client is containerd's client of a server.
func client(t *testing.T, s *Server) (task.TTRPCTaskService, net.Conn) {
	t.Helper()
	conn := serve(t, s)
	c := lib.NewClient(conn)
	t.Cleanup(func() { _ = c.Close() })
	return task.NewTTRPCTaskClient(c), conn
}

// TestServer: containerd's client gets answers and errors with their classes.
func TestServer(t *testing.T) {
	t.Parallel()
	c, _ := client(t, &Server{Handle: func(_ context.Context, method string, payload []byte) (Message, error) {
		var r Request
		if err := Unmarshal(payload, &r); err != nil {
			return nil, err
		}
		switch method {
		case "Start":
			return &PID{7}, nil
		case "State":
			return nil, Errorf(NotFound, "container %s", r.ID)
		}
		return nil, errors.New("no idea")
	}})
	if resp, err := c.Start(t.Context(), &task.StartRequest{ID: "a"}); err != nil || resp.Pid != 7 {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := c.State(t.Context(), &task.StateRequest{ID: "a"}); !errdefs.IsNotFound(errgrpc.ToNative(err)) || !strings.Contains(err.Error(), "container a") {
		t.Errorf("%v", err)
	}
	if _, err := c.Pids(t.Context(), &task.PidsRequest{ID: "a"}); err == nil || !strings.Contains(err.Error(), "no idea") {
		t.Errorf("%v", err)
	}
}

// TestConnections: they are counted from before there are any until the last one has been closed.
func TestConnections(t *testing.T) {
	t.Parallel()
	idle := make(chan struct{}, 1)
	s := &Server{Idle: func() { idle <- struct{}{} }, Handle: func(context.Context, string, []byte) (Message, error) { return &Empty{}, nil }}
	counts := make(chan int)
	go func() { counts <- s.Connections() }() // while the server starts
	conn := serve(t, s)
	if n := <-counts; n > 1 {
		t.Errorf("%d connections", n)
	}
	other, err := new(net.Dialer).DialContext(t.Context(), "unix", conn.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{conn, other} {
		if err := Call(c, 1, "containerd.task.v3.Task", "Connect", &Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	_, _ = conn.Close(), other.Close()
	<-idle
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections, want none", n)
	}
}

func TestServerRefusesOtherServices(t *testing.T) {
	t.Parallel()
	conn := serve(t, &Server{})
	c := lib.NewClient(conn)
	t.Cleanup(func() { _ = c.Close() })
	err := c.Call(t.Context(), "containerd.runtime.sandbox.v1.Sandbox", "StartSandbox", &emptypb.Empty{}, &emptypb.Empty{})
	if !errdefs.IsNotImplemented(errgrpc.ToNative(err)) {
		t.Errorf("%v", err)
	}
}

// TestContexts: a call ends at the time that the caller gives, and with the connection.
func TestContexts(t *testing.T) {
	t.Parallel()
	ended, idle := make(chan error, 1), make(chan struct{}, 1)
	begun := make(chan struct{}, 1)
	s := &Server{Idle: func() { idle <- struct{}{} }, Handle: func(ctx context.Context, _ string, _ []byte) (Message, error) {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}
	c, conn := client(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // enough for the call to begin
	defer cancel()
	if _, err := c.Wait(ctx, &task.WaitRequest{}); err == nil {
		t.Error("no error")
	}
	<-begun
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	go func() { _, _ = c.Wait(context.Background(), &task.WaitRequest{}) }()
	<-begun
	if n := s.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-idle
	s.Drain(time.Minute)
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// TestTooLarge: a request that is too large is refused without being kept, and the next one is
// answered.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	conn := serve(t, &Server{Handle: func(context.Context, string, []byte) (Message, error) { return &Empty{}, nil }})
	header := binary.BigEndian.AppendUint32(nil, maxSize+1)
	if _, err := conn.Write(append(header, 0, 0, 0, 1, request, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(make([]byte, maxSize+1)); err != nil {
		t.Fatal(err)
	}
	f, ok, err := readFrame(conn)
	var r reply
	if err == nil {
		err = Unmarshal(f.data, &r)
	}
	if err != nil || !ok || r.status.Code != ResourceExhausted {
		t.Errorf("%+v, %v", r, err)
	}
	if err := Call(conn, 3, "containerd.task.v3.Task", "Connect", &Empty{}); err != nil {
		t.Error(err)
	}
	if err := writeFrame(conn, frame{data: make([]byte, maxSize+1)}); err == nil {
		t.Error("it sent a message that is too large")
	}
}

func TestFrame(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	want := frame{stream: 5, kind: response, data: []byte("abc")}
	if err := writeFrame(&b, want); err != nil {
		t.Fatal(err)
	}
	cut := bytes.NewReader(b.Bytes()[:b.Len()-1])
	if _, _, err := readFrame(cut); err == nil {
		t.Error("half a message was read")
	}
	if got, ok, err := readFrame(&b); err != nil || !ok || got.stream != 5 || got.kind != response || string(got.data) != "abc" {
		t.Errorf("%+v, %v", got, err)
	}
}

// events is containerd's side of events.
type events struct {
	got chan *eventsttrpc.ForwardRequest
}

func (e events) Forward(_ context.Context, r *eventsttrpc.ForwardRequest) (*emptypb.Empty, error) {
	e.got <- r
	if r.Envelope.Namespace == "refused" {
		return nil, errgrpc.ToGRPC(errdefs.ErrUnavailable)
	}
	return &emptypb.Empty{}, nil
}

// TestCall: containerd's server gets an event.
func TestCall(t *testing.T) {
	t.Parallel()
	s, err := lib.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	e := events{make(chan *eventsttrpc.ForwardRequest, 1)}
	eventsttrpc.RegisterTTRPCEventsService(s, e)
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(context.Background(), l) }()
	t.Cleanup(func() { _ = s.Close() })
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream := uint32(1)
	for namespace, refused := range map[string]bool{"ns": false, "refused": true} {
		r := Event{"exit", "TaskExit", &ProcessEvent{Request: Request{"id", "id"}}}.Forward(namespace, at)
		err := Call(conn, stream, "containerd.services.events.ttrpc.v1.Events", "Forward", r)
		if (err != nil) != refused {
			t.Errorf("%s: %v", namespace, err)
		}
		got := (<-e.got).Envelope
		if got.Namespace != namespace || got.Topic != "/tasks/exit" || got.Event.TypeUrl != "containerd.events.TaskExit" || !got.Timestamp.AsTime().Equal(at) {
			t.Errorf("%+v", got)
		}
		stream += 2
	}
}

// TestDisconnected: the end of a call is not that of its connection.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	gone := make(chan (<-chan struct{}), 1)
	c, conn := client(t, &Server{Handle: func(ctx context.Context, _ string, _ []byte) (Message, error) {
		gone <- Disconnected(ctx)
		return &Empty{}, nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	_, err := c.Start(ctx, &task.StartRequest{})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	disconnected := <-gone
	select {
	case <-disconnected:
		t.Fatal("disconnected after a call")
	default:
	}
	_ = conn.Close()
	<-disconnected
	if Disconnected(t.Context()) != nil {
		t.Error("there is a connection without a call")
	}
}
