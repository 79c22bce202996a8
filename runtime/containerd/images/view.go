package images

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	continuity "github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
)

// rootLabel protects a snapshot that belongs to no container from the garbage collector.
const rootLabel = "containerd.io/gc.root"

// MountView mounts a read-only view of the image, with the given key, on the directory. What is
// already mounted there stays.
func (c *Store) MountView(ctx context.Context, s Conn, img *Image, key, dir string) error {
	c.locks.Lock(key)
	defer func() { _ = c.locks.Unlock(key) }()
	if mounted, err := mountinfo.Mounted(dir); err != nil || mounted {
		return err
	}
	label := snapshots.WithLabels(map[string]string{rootLabel: time.Now().UTC().Format(time.RFC3339)})
	mounts, err := s.Snapshots().View(ctx, key, img.ChainID, label)
	if errdefs.IsAlreadyExists(err) {
		// The machine was rebooted, or this program was killed.
		mounts, err = s.Snapshots().Mounts(ctx, key)
	}
	if err != nil {
		return fmt.Errorf("making a view of the image: %w", NativeError(err))
	}
	if err := mount.All(mounts, dir); err != nil {
		return fmt.Errorf("mounting the image: %w", err)
	}
	return nil
}

// Copy copies directories of the image: see engine.Engine, CopyFromImage.
func (c *Store) Copy(ctx context.Context, s Conn, img *Image, dirs map[string]string) error {
	return c.viewed(ctx, s, img.ChainID, func(root string) error {
		for path, dir := range dirs {
			source, err := continuity.RootPath(root, path)
			if err != nil {
				return fmt.Errorf("finding %s in the image: %w", path, err)
			}
			if info, err := os.Stat(source); err != nil || !info.IsDir() {
				continue // nothing to copy
			}
			if err := continuity.CopyDir(dir, source); err != nil {
				return fmt.Errorf("copying %s of the image: %w", path, err)
			}
		}
		return nil
	})
}

// RemoveView removes the view of the key, if there is one.
func RemoveView(ctx context.Context, s Conn, key string) error {
	if err := IgnoreNotFound(s.Snapshots().Remove(ctx, key)); err != nil {
		return fmt.Errorf("removing a view of an image: %w", err)
	}
	return nil
}
