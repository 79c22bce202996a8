package containerd_test

import (
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	versionapi "github.com/containerd/containerd/api/services/version/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// The process that serves may end between the moment that another one finds it and the
// moment that the other one has its events.
func TestWhoeverServesEndsWhileAnotherProcessOpens(t *testing.T) {
	roottest.Require(t)
	p := newTestDirs(t)
	if err := p.open(t, t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	unlock, err := server.TryLock(p.options().Root)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", server.Socket(p.options().State))
	if err != nil {
		t.Fatal(err)
	}
	var server *grpc.Server
	server = grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		switch method, _ := grpc.MethodFromServerStream(s); filepath.Base(method) {
		case "Version":
			if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
				return err
			}
			return s.SendMsg(&versionapi.VersionResponse{Version: "2.4.2"})
		case "Publish": // the first call that is about events
			if err := unlock(); err != nil {
				t.Error(err)
			}
			go server.Stop()
			<-s.Context().Done()
		}
		return status.Error(codes.Unimplemented, "")
	}))
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	e := p.open(t, t.Context())
	defer func() { _ = e.Close() }()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := e.Containers(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

// TestWhoeverServesIsKilledDuringAnImport: the archive is read again.
func TestWhoeverServesIsKilledDuringAnImport(t *testing.T) {
	roottest.Require(t)
	p := newTestDirs(t)
	archive, err := boxArchive()
	if err != nil {
		t.Fatal(err)
	}
	_, kill := p.other(t, "")
	e := p.open(t, t.Context())
	defer func() { _ = e.Close() }()
	a := archiveOf(t, archive)
	begun := sync.OnceFunc(kill)
	a.OnRead = func(int64, int64) { begun() }
	refs, err := e.ImportArchive(t.Context(), a)
	if err != nil || len(refs) != 1 || refs[0] != boxRef {
		t.Errorf("%v, %v", refs, err)
	}
	startUp(t, e, p.box(t, "later", "trap"))
}

const tasksService = "/containerd.services.tasks.v1.Tasks/"

// TestServerEndsWhileStarting: a container that was started by a server that ended before it
// could say so runs on, or has run and does not run again. Other processes may wait for it, and
// must not see it killed.
func TestServerEndsWhileStarting(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want engine.State
	}{
		{[]string{"trap"}, engine.StateRunning},
		{[]string{"exit", "3"}, engine.StateExited},
	} {
		t.Run(tc.args[0], func(t *testing.T) {
			p := newTestDirs(t)
			if err := p.openWithBox(t).Close(); err != nil {
				t.Fatal(err)
			}
			stop, _ := p.other(t, "")
			x := startProxy(t, p, tasksService+"Start", func() {
				if tc.want == engine.StateExited {
					awaitExitRecord(t, p, "a")
				}
			})
			e := p.open(t, t.Context())
			if err := e.Start(t.Context(), p.box(t, "a", tc.args...)); err != nil {
				t.Fatal(err)
			}
			if c, ok := find(t, e, "a"); !ok || c.State != tc.want || tc.want == engine.StateExited && c.Exit.ExitCode != 3 {
				t.Errorf("container %+v", c)
			}
			if created, killed := x.count(tasksService+"Create"), x.count(tasksService+"Kill"); created != 1 || killed != 0 {
				t.Errorf("the container was created %d times and killed %d times", created, killed)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			stop()
		})
	}
}

// awaitExitRecord waits until the shim has recorded the end of the container.
func awaitExitRecord(t *testing.T, p testDirs, id string) {
	t.Helper()
	path := filepath.Join(p.options().Root, "containers", id+".json")
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if r, err := protocol.Read(path); err == nil && r.Ended() {
			return
		}
	}
	t.Error("the container has not ended")
}

// TestServerEndsWhileCreating: a container whose creation was lost with the server is created
// again, in the shim that its pod has.
func TestServerEndsWhileCreating(t *testing.T) {
	p := newTestDirs(t)
	if err := p.openWithBox(t).Close(); err != nil {
		t.Fatal(err)
	}
	stop, _ := p.other(t, "a", "trap")
	x := startProxy(t, p, tasksService+"Create", func() {})
	e := p.open(t, t.Context())
	c := p.box(t, "b", "trap")
	c.PodUID = "pod-a"
	startUp(t, e, c)
	for _, id := range []string{"a", "b"} {
		if c, ok := find(t, e, id); !ok || c.State != engine.StateRunning {
			t.Errorf("container %+v", c)
		}
	}
	if created := x.count(tasksService + "Create"); created != 2 {
		t.Errorf("the container was created %d times", created)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	stop()
}
