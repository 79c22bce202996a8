package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/network/hostnet"
)

// podLock is held by whoever works on a pod's sandbox. The CNI plugins inherit it: when
// their caller is killed, they may go on, and the next process has to wait for them.
type podLock struct {
	dir *os.File // the pod's directory
}

// lock waits for the pod's lock, at most hostnet.MaxWait.
func (l layout) lock(ctx context.Context, uid string) (podLock, error) {
	var lock podLock
	err := hostnet.Await(ctx, func() (ok bool, err error) {
		lock, ok, err = l.tryLock(uid)
		return ok, err
	})
	if err != nil {
		return podLock{}, fmt.Errorf("taking the pod's lock: %w", err)
	}
	return lock, nil
}

// tryLock takes the pod's lock unless somebody has it.
func (l layout) tryLock(uid string) (lock podLock, ok bool, err error) {
	path := l.pod(uid)
	if err := os.MkdirAll(path, 0o711); err != nil {
		return podLock{}, false, fmt.Errorf("making the pod's directory: %w", err)
	}
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return podLock{}, false, nil // just removed
	}
	if err != nil {
		return podLock{}, false, fmt.Errorf("opening the pod's directory: %w", err)
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	busy := errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR)
	if err == nil && !isAt(dir, path) {
		busy = true // the lock is on a directory that was removed meanwhile
	} else if err == nil {
		return podLock{dir}, true, nil
	}
	_ = dir.Close()
	if busy {
		return podLock{}, false, nil
	}
	return podLock{}, false, fmt.Errorf("locking the pod's directory: %w", err)
}

func isAt(dir *os.File, path string) bool {
	held, err := dir.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(held, there)
}

// release gives the lock back. The directory goes first if nothing is left in it, while
// nobody else can be at work in it.
func (k podLock) release() {
	_ = os.Remove(k.dir.Name())
	_ = k.dir.Close()
}
