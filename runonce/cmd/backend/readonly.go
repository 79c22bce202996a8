package backend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/containerd/server"
)

// copyName is the directory, in the state directory, of the copy of a read-only root.
const copyName = "read-only-root"

// rootRecords are the files of a root that a command needs to find pods and to stop them.
var rootRecords = []string{
	"containers/*", "users/*", "network/cni/results/*", "pods/*/pod.json",
	"io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.*/metadata.db",
}

// CopyRoot makes the engine work with a copy of the records of a root on a read-only file system:
// containerd can only open what it can write to. Processes, mounts and addresses are recorded in
// the state directory. If another process serves the root, that one is used. unlock removes the
// copy and may be called always.
func CopyRoot(o *Options) (unlock func(), readOnly bool, err error) {
	none := func() {}
	if !isReadOnly(o.Root) {
		return none, false, nil
	}
	release, err := server.TryLockReadOnly(o.Root)
	if errors.Is(err, server.ErrLocked) {
		return none, true, nil
	}
	if err != nil {
		return none, true, fmt.Errorf("container engine: %w", err)
	}
	copied := filepath.Join(o.State, copyName)
	unlock = func() {
		if err := errors.Join(os.RemoveAll(copied), release()); err != nil {
			o.Log.Warn("could not remove the copy of the root", "error", err)
		}
	}
	if err := copyFiles(o.Root, copied, rootRecords); err != nil {
		unlock()
		return none, true, fmt.Errorf("container engine: copying the records of %s, which is read-only: %w", o.Root, err)
	}
	o.Log.Warn(o.Root + " is read-only: pods can be listed and stopped, but nothing in it can be removed")
	o.Root = copied
	return unlock, true, nil
}

func isReadOnly(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_RDONLY != 0
}

// copyFiles copies the regular files that match the patterns, in place of an older copy.
func copyFiles(from, to string, patterns []string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			name, err := filepath.Rel(from, path)
			if err == nil {
				err = copyFile(path, filepath.Join(to, name))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, data, 0o600))
}
