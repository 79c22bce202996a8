package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/containerd/v2/core/mount"

	"github.com/runonce/runonce/internal/procstat"
)

// mounted calls f with a directory on which the mounts are mounted while f runs.
func (c *Store) mounted(mounts []mount.Mount, f func(root string) error) (err error) {
	dir, err := procstat.TempDir(c.users)
	if err != nil {
		return fmt.Errorf("making a directory for the image's mount: %w", err)
	}
	defer func() { err = errors.Join(err, unmount(dir)) }()
	if err := mount.All(mounts, dir); err != nil {
		return fmt.Errorf("mounting the image: %w", err)
	}
	return f(dir)
}

// Sweep removes the mounts that killed processes have left.
func (c *Store) Sweep() error { return procstat.Sweep(c.users, unmount) }

// unmount removes all mounts and the directory, but nothing in it.
func unmount(dir string) error {
	if err := mount.UnmountRecursive(dir, 0); err != nil {
		return fmt.Errorf("unmounting the image: %w", err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmounting the image: %w", err)
	}
	return nil
}
