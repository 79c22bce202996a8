package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
)

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 10 * time.Millisecond

// locks keeps processes that work on the same pods from each other's way: one at a time
// starts or stops the containers of a pod, and the next one finds them as they are.
type locks struct{ dir string }

// hold waits for the pod's lock and returns what gives it back; gone says that the pod is
// gone for good, and its lock with it.
func (l locks) hold(ctx context.Context, pod *v1.Pod) (release func(gone bool), err error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("locking pod %q: %w", pod.Name, err)
	}
	path := filepath.Join(l.dir, string(pod.UID)+".lock")
	for {
		f, err := tryLock(path)
		if err != nil {
			return nil, fmt.Errorf("locking pod %q: %w", pod.Name, err)
		}
		if f != nil {
			return func(gone bool) {
				if gone {
					_ = os.Remove(path) // at worst an empty file stays
				}
				_ = f.Close() // which unlocks
			}, nil
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return nil, fmt.Errorf("locking pod %q, which another process works on: %w", pod.Name, context.Cause(ctx))
		}
	}
}

// tryLock returns the locked file, or nil when another process has it or has just
// removed it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, f.Close()
	}
	if err != nil {
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
