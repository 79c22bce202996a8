package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/runonce/runonce/internal/flock"
)

// ErrLocked says that another process serves the root.
var ErrLocked = errors.New("another process serves it")

// Holder returns the process that has the lock of the root directory.
func Holder(root string) flock.Holder { return flock.HolderOf(lockPath(root)) }

func lockPath(root string) string { return filepath.Join(root, "lock") }

// TryLock takes the lock of the root directory, which it creates when needed. The process that
// holds it may call Start. When another process does, the error wraps ErrLocked. The lock is
// released by the returned function or the end of the process.
func TryLock(root string) (unlock func() error, err error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("making the root directory: %w", err)
	}
	return lock(root, os.O_RDWR|os.O_CREATE)
}

// TryLockReadOnly is TryLock for a root directory on a read-only file system, which a process
// has locked before.
func TryLockReadOnly(root string) (unlock func() error, err error) { return lock(root, os.O_RDONLY) }

func lock(root string, flags int) (unlock func() error, err error) {
	path := lockPath(root)
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	ok, err := flock.Lock(f)
	if err == nil && !ok {
		err = fmt.Errorf("locking %q: %w", path, ErrLocked)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
