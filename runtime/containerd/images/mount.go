package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/mount"
)

// mountPrefix is the prefix of the directories for temporary mounts of images; the ID of the
// process follows.
const mountPrefix = "mount-"

// mounted calls f with a directory on which the mounts are mounted while f runs.
func (c *Store) mounted(mounts []mount.Mount, f func(root string) error) (err error) {
	if err := os.MkdirAll(c.users, 0o700); err != nil {
		return fmt.Errorf("making a directory for the image's mount: %w", err)
	}
	dir, err := os.MkdirTemp(c.users, mountPrefix+strconv.Itoa(os.Getpid())+"-")
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
func (c *Store) Sweep() error {
	left, err := filepath.Glob(filepath.Join(c.users, mountPrefix+"*"))
	if err != nil {
		return fmt.Errorf("looking for mounts of earlier runs: %w", err)
	}
	for _, dir := range left {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), mountPrefix), "-")
		pid, err := strconv.Atoi(name)
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		if err := unmount(dir); err != nil {
			return err
		}
	}
	return nil
}

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
