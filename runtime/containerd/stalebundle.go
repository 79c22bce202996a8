package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

const (
	// staleAfter is how old the bundle of a task that a daemon does not know must be: a younger
	// one may belong to a call of a process that was killed, at which the daemon still works.
	staleAfter = 10 * time.Second
	bundlePoll = 50 * time.Millisecond
	// daemonRuntimeRoot is the directory in which the OCI runtimes of a daemon keep their state,
	// below a directory for each namespace (cmd/containerd-shim-runc-v2/process, RuncRoot).
	daemonRuntimeRoot = "/run/containerd/runc"
)

// RemoveLeft removes what daemons have left of containers that are gone.
func (e *Engine) RemoveLeft(ctx context.Context) error {
	links, err := filepath.Glob(protocol.BundlePath(e.recordPath("*")))
	if err != nil {
		return fmt.Errorf("looking for bundles: %w", err)
	}
	var errs []error
	for _, link := range links {
		id := strings.TrimSuffix(filepath.Base(link), filepath.Base(protocol.BundlePath(e.recordPath(""))))
		if _, _, known := e.containers.get(id); known || e.o.Address == "" {
			continue
		}
		err := e.do(ctx, func(ctx context.Context, s *session) error { return e.removeNotedBundle(ctx, s, id) })
		if err == nil {
			err = removeFile(link)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("removing what is left of container %q: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// removeNotedBundle removes the bundle of a container without a task, if the shim has noted where it is.
// Nearly always the daemon has done that.
func (e *Engine) removeNotedBundle(ctx context.Context, s *session, id string) error {
	bundle, err := os.Readlink(protocol.BundlePath(e.recordPath(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for its bundle: %w", err)
	}
	bundles := filepath.Dir(filepath.Dir(bundle))
	if bundle != filepath.Join(bundles, e.o.Namespace, id) {
		return nil // of another daemon
	}
	return e.removeStaleBundle(ctx, s, bundles, id)
}

// removeStaleBundle removes the bundle of a container without a task, and what the OCI runtime has of
// it. A daemon leaves one when a call that creates a task is cut off, and would refuse to create the
// task for ever. It waits as long as the daemon may still be at work.
func (e *Engine) removeStaleBundle(ctx context.Context, s *session, bundles, id string) error {
	bundle := filepath.Join(bundles, e.o.Namespace, id)
	for begin := time.Now(); ; {
		info, err := os.Stat(bundle)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("looking for its bundle: %w", err)
		}
		if time.Since(info.ModTime()) > staleAfter || time.Since(begin) > staleAfter {
			break
		}
		select {
		case <-time.After(bundlePoll):
		case <-ctx.Done():
			return fmt.Errorf("waiting for containerd to remove its bundle %s: %w", bundle, ctx.Err())
		}
	}
	if _, err := s.task(ctx, id); !errdefs.IsNotFound(err) {
		return err
	}
	err := e.deleteInDaemonRuntime(ctx, s, id)
	if err == nil {
		err = server.RemoveBundle(ctx, bundles, id)
	}
	if err != nil {
		return fmt.Errorf("removing what a call that was cut off has left of it: %w", err)
	}
	e.o.Log.Info("removed what an interrupted call had left of a container", "container", id)
	return nil
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
