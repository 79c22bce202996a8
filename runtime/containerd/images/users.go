package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	continuity "github.com/containerd/continuity/fs"

	"github.com/runonce/runonce/internal/process"
)

// maxUsers bounds the passwd and the group file of an image each, in bytes.
const maxUsers = 1 << 20

// mountedUsers reads passwd and group from a view of the image.
func (c *Store) mountedUsers(ctx context.Context, s Conn, chainID string) (u users, err error) {
	err = c.viewed(ctx, s, chainID, func(root string) (err error) {
		if u.Passwd, err = readInside(root, "etc/passwd"); err == nil {
			u.Group, err = readInside(root, "etc/group")
		}
		return err
	})
	return u, err
}

// viewed calls f with a directory on which a view of the image is mounted while f runs.
func (c *Store) viewed(ctx context.Context, s Conn, chainID string, f func(root string) error) (err error) {
	ctx, release, err := holdLease(ctx, s.Client)
	if err != nil {
		return fmt.Errorf("holding a view of the image: %w", NativeError(err))
	}
	defer func() { err = release(err) }()
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()

	key := "runonce-view-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	mounts, err := s.Snapshots().View(ctx, key, chainID)
	if err != nil {
		return fmt.Errorf("making a view of the image: %w", NativeError(err))
	}
	defer func() {
		if rerr := IgnoreNotFound(s.Snapshots().Remove(cleanup, key)); rerr != nil {
			err = errors.Join(err, fmt.Errorf("removing a view of the image: %w", rerr))
		}
	}()
	return c.mounted(mounts, f)
}

// readInside reads a file below root, following symbolic links as if root were the root.
// An absent file, or one that is not a regular file, is nil.
func readInside(root, name string) ([]byte, error) {
	path, err := continuity.RootPath(root, name)
	if err != nil {
		return nil, fmt.Errorf("finding %s in the image: %w", name, err)
	}
	// So that a FIFO does not block it.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENXIO) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s of the image: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxUsers))
	if err != nil {
		return nil, fmt.Errorf("reading %s of the image: %w", name, err)
	}
	return data, nil
}

// mounted calls f with a directory on which the mounts are mounted while f runs.
func (c *Store) mounted(mounts []mount.Mount, f func(root string) error) (err error) {
	dir, err := process.TempDir(c.users)
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
func (c *Store) Sweep() error { return process.Sweep(c.users, unmount) }

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
