package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"

	"github.com/runonce/runonce/runtime/containerd/images"
)

// marker is a file in the root directory that exists while a server runs. A server that finds
// it comes after one that was killed.
const marker = "running"

// recover removes what a killed server left and nothing else would find. There are no clients
// yet.
func (s *Server) recover(ctx context.Context, o Options) error {
	path := filepath.Join(o.Root, marker)
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err := os.WriteFile(path, nil, 0o600)
		if errors.Is(err, syscall.ENOSPC) {
			// Pods can be listed and stopped on a full file system.
			o.Log.Warn("could not mark the root directory; if this process is killed, the next one will not clean up after it", "error", err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("marking the root directory: %w", err)
		}
		return nil
	}
	o.Log.Debug("the last containerd here was killed, cleaning up")
	ctx = namespaces.WithNamespace(ctx, o.Namespace)
	if _, err := images.SweepLeases(ctx, s.Client.LeasesService()); err != nil {
		return err
	}
	s.cleanSnapshots(ctx, o.Log)
	return s.Collect(ctx)
}

// unmark records an orderly end.
func unmark(root string) error {
	if err := os.Remove(filepath.Join(root, marker)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmarking the root directory: %w", err)
	}
	return nil
}

// cleanSnapshots has the garbage collector look for snapshots that only one of the two stores
// had recorded, and for directories that neither had: it looks only at snapshotters in which
// something was removed.
func (s *Server) cleanSnapshots(ctx context.Context, log *slog.Logger) {
	for _, p := range s.set.GetAll() {
		if p.Registration.Type != plugins.SnapshotPlugin || p.Err() != nil {
			continue
		}
		if err := touch(ctx, s.Client.SnapshotService(p.Registration.ID)); err != nil {
			log.Warn("could not clean up old snapshots", "snapshotter", p.Registration.ID, "error", err)
		}
	}
}

// touch makes and removes a snapshot.
func touch(ctx context.Context, s snapshots.Snapshotter) error {
	const key = "runonce-recover"
	_, err := s.Prepare(ctx, key, "")
	if err != nil && !errdefs.IsAlreadyExists(err) {
		// A directory that was not recorded has the name that is used next, and is in the
		// way once: the failure removes it.
		_, err = s.Prepare(ctx, key, "")
	}
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return err
	}
	// The garbage collector may be faster.
	if err := s.Remove(ctx, key); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return nil
}
