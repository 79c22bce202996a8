package shortcuts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/mount"
	shims "github.com/containerd/containerd/v2/core/runtime/v2"
)

// RemoveBundle removes what is left of the bundle of a deleted task. The embedded containerd
// tries only once, even while a shim is still mounting there or runc is making directories.
// ctx has the namespace.
func (s Shims) RemoveBundle(ctx context.Context, id string) error {
	bundle, err := shims.LoadBundle(ctx, s.Bundles, id)
	if err != nil {
		return err
	}
	// Containerd renames a bundle before it removes it.
	hidden := filepath.Join(filepath.Dir(bundle.Path), "."+id)
	for _, path := range []string{filepath.Join(bundle.Path, "rootfs"), hidden} {
		if err == nil && exists(path) {
			err = unmountAndRemove(path)
		}
	}
	if err == nil && exists(bundle.Path) {
		err = bundle.Delete()
	}
	if err != nil {
		return fmt.Errorf("removing its bundle: %w", err)
	}
	return nil
}

// unmountAndRemove removes nothing when something cannot be unmounted.
func unmountAndRemove(path string) error {
	if err := mount.UnmountRecursive(path, 0); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
