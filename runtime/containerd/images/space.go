package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
)

const (
	// The types of a lease's resources (core/metadata).
	ingestResource    = "ingests"
	snapshotResources = "snapshots/"
)

// freeSpace removes the files of what was being fetched and unpacked under the lease when the
// disk became full. Containerd cannot: to forget a snapshot it must write to its metadata first,
// for which there is no space.
func freeSpace(ctx context.Context, c *client.Client, lease leases.Lease) error {
	all, err := c.LeasesService().ListResources(ctx, lease)
	if err != nil {
		return fmt.Errorf("looking for what fills the disk: %w", NativeError(err))
	}
	var failed []error
	for _, r := range all {
		snapshotter, unpacking := strings.CutPrefix(r.Type, snapshotResources)
		switch {
		case unpacking && strings.HasPrefix(r.ID, snapshots.UnpackKeyPrefix+"-"):
			err = emptySnapshot(ctx, c.SnapshotService(snapshotter), r.ID)
		case r.Type == ingestResource:
			err = c.ContentStore().Abort(ctx, r.ID)
		default:
			continue
		}
		if err = IgnoreNotFound(err); err != nil {
			failed = append(failed, fmt.Errorf("removing what fills the disk: %w", err))
		}
	}
	return errors.Join(failed...)
}

// emptySnapshot removes the files of a layer that is being unpacked.
func emptySnapshot(ctx context.Context, s snapshots.Snapshotter, key string) error {
	mounts, err := s.Mounts(ctx, key)
	if err != nil {
		return err
	}
	dir := layerDir(mounts)
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	failed := make([]error, 0, len(entries))
	for _, e := range entries {
		failed = append(failed, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(failed...)
}

// layerDir returns the directory in which the mounts of a snapshot keep what is written, empty
// when there is none.
func layerDir(mounts []mount.Mount) string {
	if len(mounts) != 1 {
		return ""
	}
	m := mounts[0]
	for _, o := range m.Options {
		if dir, ok := strings.CutPrefix(o, "upperdir="); ok && m.Type == "overlay" {
			return dir
		}
		if o == "rw" && m.Type == "bind" {
			return m.Source
		}
	}
	return ""
}
