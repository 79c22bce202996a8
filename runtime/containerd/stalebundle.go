package containerd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
)

const (
	// staleAfter is how old the bundle of a task that a daemon does not know must be: a younger
	// one may belong to a call of a process that was killed, at which the daemon still works.
	staleAfter = 10 * time.Second
	// daemonRuntimeRoot is the directory in which the OCI runtimes of a daemon keep their state,
	// below a directory for each namespace (cmd/containerd-shim-runc-v2/process, RuncRoot).
	daemonRuntimeRoot = "/run/containerd/runc"
)

// removeStaleBundle removes a bundle that is in the way of a new task, as the error says, and
// what the OCI runtime has of it. A daemon leaves one when its client is killed while a task is
// created, and would refuse to create the task for ever. It reports whether it did so.
func (e *Engine) removeStaleBundle(ctx context.Context, s *session, id string, err error) bool {
	bundles := bundlesDir(err, e.o.Namespace, id)
	if s.shims != nil || bundles == "" {
		return false
	}
	bundle := filepath.Join(bundles, e.o.Namespace, id)
	if info, err := os.Stat(bundle); err != nil || time.Since(info.ModTime()) < staleAfter {
		return false
	}
	if _, err := s.Tasks().Get(ctx, &tasksapi.GetRequest{ContainerID: id}); !errdefs.IsNotFound(images.NativeError(err)) {
		return false
	}
	err = e.deleteInDaemonRuntime(ctx, s, id)
	if err == nil {
		err = server.RemoveBundle(ctx, bundles, id)
	}
	if err != nil {
		e.o.Log.Warn("what a killed process has left of a container is not removed", "container", id, "error", err)
		return false
	}
	e.o.Log.Info("removed what a killed process had left of a container", "container", id)
	return true
}

// removeHalfCreated removes what the OCI runtime has left of a container that it was killed while it
// created, for example when the call was canceled. It has no state yet, so that the shim does not
// know the container, and the OCI runtime would refuse to create it for ever.
func (e *Engine) removeHalfCreated(ctx context.Context, s *session, id string) error {
	// One with a state may be that of another daemon, which uses the same directory.
	state := filepath.Join(daemonRuntimeRoot, e.o.Namespace, id, "state.json")
	if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return e.deleteInDaemonRuntime(ctx, s, id)
}

// deleteInDaemonRuntime removes the container from the daemon's OCI runtime, if it is there.
func (e *Engine) deleteInDaemonRuntime(ctx context.Context, s *session, id string) error {
	root := filepath.Join(daemonRuntimeRoot, e.o.Namespace)
	if _, err := os.Stat(filepath.Join(root, id)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	o, err := runcOptions(ctx, s, id)
	if err != nil || o == nil {
		return err
	}
	return e.bounded(ctx, s, id, "delete", func(ctx context.Context) error {
		return server.DeleteInRuntime(ctx, o.BinaryName, root, id)
	})
}

// inTheWay matches containerd's error for a task whose bundle exists.
var inTheWay = regexp.MustCompile(`mkdir (/\S+/io\.containerd\.runtime\.v2\.task)/(\S+)/(\S+): file exists`)

// bundlesDir returns the directory of all bundles from the error for one that is in the way of
// the container, empty for any other error.
func bundlesDir(err error, namespace, id string) string {
	m := inTheWay.FindStringSubmatch(err.Error())
	if m == nil || m[2] != namespace || m[3] != id {
		return ""
	}
	return m[1]
}
