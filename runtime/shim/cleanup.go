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

	cleanupDelay   = 2 * time.Second
	cleanupRetry   = 15 * time.Second
	cleanupTimeout = 30 * time.Second
)

// cleanupOrphan deletes an ended container when no containerd will: none is running, or the
// bundle is gone and containerd does not know the container any more. Nothing needs it: the
// exit is recorded and the log complete. After its last container the shim ends. It returns
// early when containerd deletes the container.
func (s *service) cleanupOrphan(ctx context.Context, id string) {
	wait := time.NewTimer(cleanupDelay)
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
		if absent(c.bundle) || !served(ctx) {
			s.deleteOrphan(ctx, id, c.bundle)
			return
		}
		wait.Reset(cleanupRetry)
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

// deleteOrphan does what containerd does to delete an ended task.
func (s *service) deleteOrphan(ctx context.Context, id, bundle string) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	// A bundle that appears meanwhile belongs to the next container with this name.
	forgotten := absent(bundle)
	if _, err := s.Delete(ctx, &taskAPI.DeleteRequest{ID: id}); err != nil {
		return
	}
	if !forgotten && removeBundle(bundle) != nil {
		return
	}
	// It ends the shim only when this was its last container.
	_, _ = s.Shutdown(ctx, &taskAPI.ShutdownRequest{ID: id})
}

// removeBundle removes a bundle, but nothing that is still mounted in it.
func removeBundle(bundle string) error {
	rootfs := filepath.Join(bundle, "rootfs")
	if err := mount.UnmountRecursive(rootfs, 0); err != nil {
		return err
	}
	if err := os.Remove(rootfs); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// It may be the shim's working directory.
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return os.RemoveAll(bundle)
}
