// Package flock has advisory locks on files, for mutual exclusion of processes. The kernel
// releases a lock when the process that holds it ends.
package flock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// pollInterval is how often a lock that another process holds is tried again.
	pollInterval = 10 * time.Millisecond
	// noticeAfter is how long a lock is waited for in silence, and then how often its holder is
	// looked at.
	noticeAfter = 3 * time.Second
	// stoppedLimit bounds the wait for a holder that is stopped by a signal.
	stoppedLimit = 6 * time.Second
)

// Acquire waits for the lock of the file, which it creates if needed. Closing the file releases
// the lock. Only the holder of the lock may remove the file. A wait that takes long is reported
// to notify, once, if another process holds the lock, and is an error if the holder is stopped and
// so cannot go on.
func Acquire(ctx context.Context, path string, notify func(Holder)) (*os.File, error) {
	w := watch{notify: notify, checked: time.Now()}
	for {
		f, err := Try(path)
		if f != nil || err != nil {
			return f, err
		}
		if err := w.check(path); err != nil {
			return nil, err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s: %w", HolderOf(path), context.Cause(ctx))
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
	now := syscall.NsecToTimeval(time.Now().UnixNano())
	_ = syscall.Futimes(int(f.Fd()), []syscall.Timeval{now, now}) // for Holder.Since
	return f, nil
}

// Lock locks an open file and reports whether the lock was free.
func Lock(f *os.File) (bool, error) { return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) }

// Do calls do while it holds the lock of the file, which it creates if needed, with its directory. It waits for the lock
// until the limit.
func Do(path string, limit time.Duration, do func() error) error {
	return With(path, limit, func(*os.File) error { return do() })
}

// With is Do for what uses the file.
func With(path string, limit time.Duration, do func(locked *os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return fmt.Errorf("making the directory of a lock: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening a lock: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := wait(f, limit); err != nil {
		return err
	}
	return do(f)
}

// wait locks an open file, for which it waits until the limit. After an error the caller closes
// the file.
func wait(f *os.File, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	ok, err := lockUntil(f, timer.C)
	if err == nil && !ok {
		err = fmt.Errorf("waiting for %s: gave up after %s; it is held by %s", f.Name(), limit, HolderOf(f.Name()))
	}
	return err
}

// Wait locks an open file in turn. Its error is the cause of ctx, if that ends before. After an error the caller closes
// the file.
func Wait(ctx context.Context, f *os.File) error {
	ok, err := lockUntil(f, ctx.Done())
	if err == nil && !ok {
		err = context.Cause(ctx)
	}
	return err
}

// lockUntil waits for the lock of an open file until end says something, and reports whether it has got it.
func lockUntil[T any](f *os.File, end <-chan T) (bool, error) {
	if ok, err := Lock(f); ok || err != nil {
		return ok, err
	}
	own, err := duplicate(f)
	if err != nil {
		return false, err
	}
	// The kernel serves those who block in turn. If this takes too long, the call goes on, and
	// the lock is released when both descriptors are closed.
	locked := make(chan error, 1)
	go func() {
		_, err := flock(own, syscall.LOCK_EX)
		locked <- errors.Join(err, own.Close())
	}()
	select {
	case err := <-locked:
		return err == nil, err
	case <-end:
		return false, nil
	}
}

// duplicate returns another descriptor of the open file, which shares its lock.
func duplicate(f *os.File) (*os.File, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// watch looks at the holder of a lock while somebody waits for it.
type watch struct {
	notify  func(Holder)
	told    bool
	checked time.Time
	stopped time.Duration // how long the holder has been stopped, at least
}

// check returns an error if the wait makes no sense any more.
func (w *watch) check(path string) error {
	since := time.Since(w.checked)
	if since < noticeAfter {
		return nil
	}
	w.checked = time.Now()
	h := HolderOf(path)
	if !w.told && w.notify != nil && h.PID != os.Getpid() {
		w.notify(h)
		w.told = true
	}
	if !h.Stopped {
		w.stopped = 0
		return nil
	}
	if w.stopped += since; w.stopped > stoppedLimit {
		return fmt.Errorf("waiting for %s", h)
	}
	return nil
}

// Open opens an existing file or directory and locks it, as the flags of flock(2) say, until it is
// closed. With LOCK_NB it returns nil when others hold the lock.
func Open(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if ok, err := flock(f, how); err != nil || !ok {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// IsLocked reports whether a process holds the lock of the file. One that does not exist is not locked.
func IsLocked(path string) (bool, error) {
	f, err := Open(path, syscall.LOCK_SH|syscall.LOCK_NB)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil || f == nil:
		return err == nil, err
	}
	return false, f.Close()
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
