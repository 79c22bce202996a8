// Package flock is advisory locks on files, by which processes take turns. A lock goes with
// the process that holds it, however that ends.
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

// Acquire waits for the lock of the file, which it creates when needed. Closing the file
// unlocks it. Whoever removes the file must hold the lock.
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

// Try returns the locked file, or nil when another process has it or has just removed it.
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

// Lock takes the lock of an open file and reports whether it was free.
func Lock(f *os.File) (bool, error) { return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) }

// Wait takes the lock of an open file, however long another process keeps it.
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
