package record

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/flock"
)

// Lock is held by whoever works on a pod: only one process at a time starts or stops its
// containers.
type Lock struct{ file *os.File }

// Lock waits for the pod's lock.
func (s *Store) Lock(ctx context.Context, uid types.UID) (Lock, error) {
	return s.lock(uid, func(path string) (*os.File, error) {
		return flock.Acquire(ctx, path, func(h flock.Holder) {
			s.notify("waiting for %s, which has been working on pod %s since %s", h, s.nameOf(uid), h.Since.Format(time.DateTime))
		})
	})
}

// TryLock locks the pod unless somebody else has, and reports whether it did.
func (s *Store) TryLock(uid types.UID) (lock Lock, ok bool, err error) {
	lock, err = s.lock(uid, flock.Try)
	return lock, lock.file != nil, err
}

func (s *Store) lock(uid types.UID, acquire func(path string) (*os.File, error)) (Lock, error) {
	var file *os.File
	dir := filepath.Join(s.state, "locks")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		file, err = acquire(filepath.Join(dir, string(uid)+".lock"))
	}
	if err != nil {
		return Lock{}, fmt.Errorf("locking pod %s: %w", uid, err)
	}
	return Lock{file}, nil
}

// notify tells the user what a call waits for.
func (s *Store) notify(format string, args ...any) {
	if s.Notify != nil {
		s.Notify(fmt.Sprintf(format, args...))
	}
}

// nameOf returns the name of the pod if it has a record, else its UID.
func (s *Store) nameOf(uid types.UID) string {
	if p, err := s.Load(uid); err == nil {
		return p.Pod.Namespace + "/" + p.Pod.Name
	}
	return string(uid)
}

// File is to be inherited by a process that works on the pod for the holder: if the holder is
// killed, the next one waits for that process.
func (l Lock) File() *os.File { return l.file }

// Release releases the lock.
func (l Lock) Release() { _ = l.file.Close() }

// Discard releases the lock of a pod that was removed, and removes its file.
func (l Lock) Discard() {
	_ = os.Remove(l.file.Name()) // at worst an empty file stays
	l.Release()
}
