// Package flock has advisory locks on files, for mutual exclusion of processes. The kernel
// releases a lock when the process that holds it ends.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// pollInterval is how often a lock that another process holds is tried again.
const pollInterval = 10 * time.Millisecond

// Acquire waits for the lock of the file, which it creates if needed. Closing the file releases
// the lock. Only the holder of the lock may remove the file.
func Acquire(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := Try(path)
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another process: %w", context.Cause(ctx))
		}
	}
}

// Try returns the locked file, or nil when another process holds the lock or has just removed
// the file.
func Try(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	ok, err := Lock(f)
	if err != nil || !ok {
		return nil, errors.Join(err, f.Close())
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(mine, now) {
		return nil, f.Close()
	}
	return f, nil
}

// Lock locks an open file and reports whether the lock was free.
func Lock(f *os.File) (bool, error) { return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) }

// Wait locks an open file, however long another process holds the lock.
func Wait(f *os.File) error {
	_, err := flock(f, syscall.LOCK_EX)
	return err
}

// Held reports whether another process holds the lock of the open file.
func Held(f *os.File) (bool, error) {
	free, err := flock(f, syscall.LOCK_SH|syscall.LOCK_NB)
	return !free, err
}

func flock(f *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("locking %s: %w", f.Name(), err)
		default:
			return true, nil
		}
	}
}
