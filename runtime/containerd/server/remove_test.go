package server

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
)

// scriptedShim is a shim with one container, a, that writes down what it is asked to do.
type scriptedShim struct {
	taskapi.TTRPCTaskService
	status tasktypes.Status
	stuck  bool // it refuses to delete
	late   bool // it has deleted a by itself when it is asked to

	mu      sync.Mutex
	calls   []string
	without bool // it does not know of a any more
}

func (s *scriptedShim) note(call, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	if id != "a" || s.without {
		return errgrpc.ToGRPC(errdefs.ErrNotFound)
	}
	return nil
}

func (s *scriptedShim) State(_ context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	return &taskapi.StateResponse{Status: s.status}, s.note("state", r.ID)
}

func (s *scriptedShim) Kill(_ context.Context, r *taskapi.KillRequest) (*types.Empty, error) {
	return &types.Empty{}, s.note("kill", r.ID)
}

func (s *scriptedShim) Wait(_ context.Context, r *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	return &taskapi.WaitResponse{}, s.note("wait", r.ID)
}

func (s *scriptedShim) Delete(_ context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	if s.late {
		s.late, s.without = false, true
	}
	if s.stuck || s.without {
		return nil, errgrpc.ToGRPC(errdefs.ErrFailedPrecondition)
	}
	return &taskapi.DeleteResponse{}, s.note("delete", r.ID)
}

func (s *scriptedShim) Shutdown(_ context.Context, r *taskapi.ShutdownRequest) (*types.Empty, error) {
	return &types.Empty{}, s.note("shutdown", r.ID)
}

// Not parallel: a process that is just being started holds every socket for a moment.
func TestRemoveFromShim(t *testing.T) {
	for _, tc := range []struct {
		name, group, id string
		shim            *scriptedShim
		want            []string
		err             string
	}{
		{name: "running", group: "pod", id: "a", shim: &scriptedShim{status: tasktypes.Status_RUNNING}, want: []string{"state", "kill", "wait", "delete", "shutdown"}},
		{name: "ended", group: "pod", id: "a", shim: &scriptedShim{status: tasktypes.Status_STOPPED}, want: []string{"state", "delete", "shutdown"}},
		{name: "another's", group: "pod", id: "b", shim: &scriptedShim{}, want: []string{"state"}},
		{name: "no shim", group: "none", id: "a", shim: &scriptedShim{}},
		{name: "ending by itself", group: "pod", id: "a", shim: &scriptedShim{status: tasktypes.Status_STOPPED, late: true}, want: []string{"state", "state"}},
		// This process serves, and is not a shim that may be killed.
		{name: "stuck", group: "pod", id: "a", shim: &scriptedShim{status: tasktypes.Status_STOPPED, stuck: true}, want: []string{"state", "state"}, err: "removing it from its shim: deleting it: failed precondition"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := testShims(t)
			if err := os.MkdirAll(shimDir(s.State), 0o700); err != nil {
				t.Fatal(err)
			}
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path("pod"), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			server, err := ttrpc.NewServer()
			if err != nil {
				t.Fatal(err)
			}
			taskapi.RegisterTTRPCTaskService(server, tc.shim)
			go func() { _ = server.Serve(context.Background(), l) }()
			t.Cleanup(func() { _ = server.Close() })
			killed, err := s.removeFromShim(t.Context(), tc.group, tc.id)
			if killed || err != nil != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("killed %v, error %v, want %q", killed, err, tc.err)
			}
			if !slices.Equal(tc.shim.calls, tc.want) {
				t.Errorf("asked %q, want %q", tc.shim.calls, tc.want)
			}
		})
	}
}

func TestListening(t *testing.T) {
	t.Parallel()
	table := filepath.Join(t.TempDir(), "unix")
	const text = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 11 /run/s/one
0000000000000000: 00000003 00000000 00000000 0001 03 12 /run/s/one
0000000000000000: 00000002 00000000 00010000 0001 01 13 /run/s/other
0000000000000000: 00000003 00000000 00000000 0001 03 14
`
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := listening(table, "/run/s/one")
	if err != nil || len(found) != 1 || !found["socket:[11]"] {
		t.Errorf("%v, %v", found, err)
	}
}
