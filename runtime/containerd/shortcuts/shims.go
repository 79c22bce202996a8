package shortcuts

import (
	"context"
	"fmt"
	"os"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"

	"github.com/runonce/runonce/runtime/shim/launch"
)

const (
	// protocol prefixes the address for containerd.
	protocol = "ttrpc+unix://"
	// answerTimeout bounds the wait for a shim's answer.
	answerTimeout = 10 * time.Second
)

// Shims starts and removes the shims of the embedded containerd.
type Shims struct {
	// Program is the shim's binary, which must stay where it is.
	Program string
	// Dir is the directory of the shims' sockets.
	Dir string
	// Address is containerd's socket; the one for the shims has the suffix .ttrpc.
	Address   string
	Namespace string
	// Bundles is the directory of the bundles of all namespaces.
	Bundles string
	// RuntimeRoot is the directory in which the OCI runtimes keep their state, below a
	// directory for each namespace.
	RuntimeRoot string
}

// Ensure returns the address of the group's shim, and whether it had to be started. id is
// the shim's name in the process list. Calls for one group must not overlap.
func (s Shims) Ensure(ctx context.Context, group, id string) (address string, fresh bool, err error) {
	path := s.path(group)
	conn, err := launch.Dial(ctx, path)
	if err == nil {
		return protocol + path, false, conn.Close()
	}
	if !launch.NotListening(err) {
		return "", false, fmt.Errorf("connecting to the shim: %w", err)
	}
	if err := s.start(ctx, path, id); err != nil {
		return "", false, fmt.Errorf("starting a shim: %w", err)
	}
	return protocol + path, true, nil
}

// Release ends the group's shim when it has no containers.
func (s Shims) Release(ctx context.Context, group string) { release(ctx, s.path(group)) }

// path returns the path of the group's socket.
func (s Shims) path(group string) string {
	return launch.SocketPath(s.Dir, s.Address, s.Namespace, group)
}

func (s Shims) start(ctx context.Context, path, id string) error {
	if err := os.MkdirAll(s.Dir, 0o711); err != nil {
		return err
	}
	p, err := launch.Start(ctx, launch.Shim{
		Program: s.Program, Namespace: s.Namespace, ID: id, Address: s.Address, Path: path,
		Events: s.Address + ".ttrpc", Search: launch.SearchPath,
	})
	if err != nil {
		return err
	}
	reap(p)
	return nil
}

func release(ctx context.Context, path string) {
	conn, err := launch.Dial(ctx, path)
	if err != nil {
		if launch.NotListening(err) {
			_ = os.Remove(path) // the next one makes it again
		}
		return
	}
	c := ttrpc.NewClient(conn)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	// A shim that ends may do so before it answers.
	_, _ = taskapi.NewTTRPCTaskClient(c).Shutdown(ctx, &taskapi.ShutdownRequest{ID: "release", Now: true})
}
