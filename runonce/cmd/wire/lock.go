package wire

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce/cmd/filelock"
)

// locks keeps processes that work on the same pods from each other's way: one at a time
// starts or stops the containers of a pod, and the next one finds them as they are.
type locks struct{ dir string }

// hold waits for the pod's lock and returns what gives it back; gone says that the pod is
// gone for good, and its lock with it.
func (l locks) hold(ctx context.Context, pod *v1.Pod) (release func(gone bool), err error) {
	path, err := l.path(pod)
	if err != nil {
		return nil, err
	}
	f, err := filelock.Hold(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("locking pod %q: %w", pod.Name, err)
	}
	return func(gone bool) {
		if gone {
			_ = os.Remove(path) // at worst an empty file stays
		}
		_ = f.Close() // which unlocks
	}, nil
}

// claim takes the pod's lock unless somebody has it.
func (l locks) claim(pod *v1.Pod) (release func(), ok bool, err error) {
	path, err := l.path(pod)
	if err != nil {
		return nil, false, err
	}
	f, err := filelock.Try(path)
	if err != nil {
		return nil, false, fmt.Errorf("locking pod %q: %w", pod.Name, err)
	}
	return func() { _ = f.Close() }, f != nil, nil
}

func (l locks) path(pod *v1.Pod) (string, error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return "", fmt.Errorf("locking pod %q: %w", pod.Name, err)
	}
	return filepath.Join(l.dir, string(pod.UID)+".lock"), nil
}
