package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

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
	f, err := flock.Try(lockPath(root))
	return locked(f, root, err)
}

// TryLockReadOnly is TryLock for a root directory on a read-only file system, which a process
// has locked before.
func TryLockReadOnly(root string) (unlock func() error, err error) {
	f, err := flock.Open(lockPath(root), unix.LOCK_EX|unix.LOCK_NB)
	return locked(f, root, err)
}

func locked(f *os.File, root string, err error) (unlock func() error, _ error) {
	switch {
	case err != nil:
		return nil, fmt.Errorf("opening the lock: %w", err)
	case f == nil:
		return nil, fmt.Errorf("locking %q: %w", lockPath(root), ErrLocked)
	}
	return f.Close, nil
}
