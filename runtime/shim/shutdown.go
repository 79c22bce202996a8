package shim

import (
	"context"
	"os"
	"syscall"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	ptypes "github.com/containerd/containerd/v2/pkg/protobuf/types"
)

// listenerFD is the descriptor of the listening socket that a shim inherits (pkg/shim.serve).
const listenerFD = 3

// Shutdown ends the shim when it has no containers. The socket's name goes first: the
// pod's next container must find either a shim that stays or none.
func (s *service) Shutdown(ctx context.Context, r *taskAPI.ShutdownRequest) (*ptypes.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if c.created {
			return s.TTRPCTaskService.Shutdown(ctx, r)
		}
	}
	if s.socket != "" {
		// It may be gone already, and nothing depends on it.
		_ = os.Remove(s.socket)
	}
	return s.TTRPCTaskService.Shutdown(ctx, r)
}

// listenerPath returns the name of the socket that the shim was given to listen at, empty
// when it has none.
func listenerPath() string {
	addr, err := syscall.Getsockname(listenerFD)
	if err != nil {
		return ""
	}
	if u, ok := addr.(*syscall.SockaddrUnix); ok {
		return u.Name
	}
	return ""
}
