package task

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

const (
	cleanupDelay = 2 * time.Second
	cleanupRetry = 15 * time.Second
)

// cleanupOrphan deletes an ended container when no containerd will: none is running, or the
// bundle is gone and containerd does not know the container any more. Nothing needs it: the
// exit is recorded and the log complete. After its last container the shim ends.
func (s *Service) cleanupOrphan(ctx context.Context, c *container) {
	for wait := cleanupDelay; ; wait = cleanupRetry {
		time.Sleep(wait)
		if !s.has(c) {
			return
		}
		if absent(c.bundle) || !served(ctx, s.events.address) {
			s.deleteOrphan(ctx, c)
			return
		}
	}
}

// served reports whether containerd listens. A busy one counts as listening.
func served(ctx context.Context, address string) bool {
	if address == "" {
		return true
	}
	conn, err := protocol.Dial(ctx, address)
	if err != nil {
		return !protocol.NotListening(err)
	}
	_ = conn.Close()
	return true
}

// deleteOrphan does what containerd does to delete an ended task.
func (s *Service) deleteOrphan(ctx context.Context, c *container) {
	ctx, cancel := context.WithTimeout(ctx, oci.EndLimit)
	defer cancel()
	// A bundle that appears meanwhile belongs to the next container with this name.
	forgotten := absent(c.bundle)
	if s.deleteContainer(ctx, c) != nil {
		return
	}
	if !forgotten && removeBundle(c.bundle) != nil {
		return
	}
	s.end()
}

// removeBundle removes a bundle and the directory that belongs to it, but nothing that is still mounted in it.
func removeBundle(bundle string) error {
	if err := os.Remove(filepath.Join(bundle, "rootfs")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if work, err := os.Readlink(filepath.Join(bundle, "work")); err == nil {
		if err := os.RemoveAll(work); err != nil {
			return err
		}
	}
	return os.RemoveAll(bundle)
}

func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
