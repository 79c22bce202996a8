package shim

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/core/mount"
)

const (
	// ttrpcAddressEnv is where containerd tells the shim its address (pkg/shim).
	ttrpcAddressEnv = "TTRPC_ADDRESS"

	orphanFirst   = 2 * time.Second
	orphanAgain   = 15 * time.Second
	orphanTimeout = 30 * time.Second
)

// outlive removes an ended container once there is no containerd to do it, or none that
// knows of it since the bundle is gone, and ends the shim after its last: the exit is
// recorded and the log complete, so that nothing needs it. It returns early when containerd
// deletes the container.
func (s *service) outlive(ctx context.Context, id string) {
	wait := time.NewTimer(orphanFirst)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		c := s.container(id)
		if c == nil {
			return
		}
		if gone(c.bundle) || !served(ctx) {
			s.bury(ctx, id, c.bundle)
			return
		}
		wait.Reset(orphanAgain)
	}
}

// served reports whether containerd listens. A busy one counts as listening.
func served(ctx context.Context) bool {
	path := strings.TrimPrefix(os.Getenv(ttrpcAddressEnv), "unix://")
	if path == "" {
		return true
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
	}
	_ = conn.Close()
	return true
}

// bury does what containerd does to delete an ended task.
func (s *service) bury(ctx context.Context, id, bundle string) {
	ctx, cancel := context.WithTimeout(ctx, orphanTimeout)
	defer cancel()
	// A bundle that is there afterwards is the next container's of this name.
	forgotten := gone(bundle)
	if _, err := s.Delete(ctx, &taskAPI.DeleteRequest{ID: id}); err != nil {
		return
	}
	if !forgotten && removeBundle(bundle) != nil {
		return
	}
	// It ends the shim only when this was its last container.
	_, _ = s.Shutdown(ctx, &taskAPI.ShutdownRequest{ID: id})
}

// removeBundle removes a bundle, but never what is still mounted in it.
func removeBundle(bundle string) error {
	rootfs := filepath.Join(bundle, "rootfs")
	if err := mount.UnmountRecursive(rootfs, 0); err != nil {
		return err
	}
	if err := os.Remove(rootfs); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The shim itself may be at home here.
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return os.RemoveAll(bundle)
}
