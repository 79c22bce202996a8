package task

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	eventsttrpc "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	lib "github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// listener is containerd's side of events.
type listener struct {
	mu     sync.Mutex
	topics []string
	on     func(topic string)
}

func (l *listener) Forward(_ context.Context, r *eventsttrpc.ForwardRequest) (*emptypb.Empty, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.topics = append(l.topics, r.Envelope.Topic)
	if l.on != nil {
		l.on(r.Envelope.Topic)
	}
	return &emptypb.Empty{}, nil
}

func (l *listener) got() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.topics...)
}

func (l *listener) listen(t *testing.T, path string) {
	t.Helper()
	server, err := lib.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	eventsttrpc.RegisterTTRPCEventsService(server, l)
	socket, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(context.Background(), socket) }()
	t.Cleanup(func() { _ = server.Close() })
}

// TestEvents: containerd gets all events in their order, and that of an exit when the record is
// complete.
func TestEvents(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s := newShim(t, "unix://"+path)
	l := &listener{on: func(topic string) {
		if r, err := protocol.Read(s.record("a")); topic == "/tasks/exit" && (err != nil || !r.Ended()) {
			t.Errorf("an exit without its record: %+v, %v", r, err)
		}
	}}
	s.must("Create", s.request("a", "exit 3"))
	s.must("Start", &ttrpc.Request{ID: "a"})
	s.wait(&ttrpc.Request{ID: "a"})
	l.listen(t, path) // only now
	s.until("the exit", func() bool { return len(l.got()) == 3 })
	s.must("Delete", &ttrpc.Request{ID: "a"})
	s.Flush()
	if diff := cmp.Diff([]string{"/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"}, l.got()); diff != "" {
		t.Error(diff)
	}
}

// TestPublishGivesUp: events that nobody wants are dropped, so that later ones are sent.
func TestPublishGivesUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	p := newPublisher("ns", path)
	p.publish("start", "TaskStart", &ttrpc.ContainerEvent{ID: "a"})
	p.mu.Lock()
	p.queue[0].at = time.Now().Add(-publishFor)
	p.mu.Unlock()
	p.flush(time.Minute)
	l := &listener{}
	l.listen(t, path)
	p.publish("exit", "TaskExit", &ttrpc.ProcessEvent{})
	p.flush(time.Minute)
	if diff := cmp.Diff([]string{"/tasks/exit"}, l.got()); diff != "" {
		t.Error(diff)
	}
}

// TestOrphan: a container that ends while no containerd runs is deleted, and the shim ends.
func TestOrphan(t *testing.T) {
	t.Parallel()
	s := newShim(t, filepath.Join(t.TempDir(), "none"))
	s.run("exit 3")
	<-s.Done()
	if !absent(filepath.Join(s.dir, "bundles", "a")) {
		t.Error("the bundle is left")
	}
	if r, err := protocol.Read(s.record("a")); err != nil || r.ExitCode != 3 {
		t.Errorf("record %+v, %v", r, err)
	}
}
