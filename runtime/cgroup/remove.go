package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/flock"
)

// Remove removes the pod's cgroup with what its containers left below it, and the cgroups
// above it that are empty then. It kills what still runs there. If the cgroup does not exist, that is
// no error.
func (t Tree) Remove(ctx context.Context, pod *v1.Pod) error {
	at := t.locate(pod)
	t.made.Delete(pod.UID)
	if at.slice != "" {
		if err := t.stopSlice(ctx, at); err != nil {
			return fmt.Errorf("removing cgroup %s: %w", at.path, err)
		}
	}
	var errs []error
	for _, root := range t.hierarchies() {
		err := removeAll(filepath.Join(root, at.path))
		if errors.Is(err, unix.EBUSY) {
			if err = t.killIn(ctx, at.path, ""); err == nil {
				err = removeAll(filepath.Join(root, at.path))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("removing cgroup %s: %w", at.path, err))
		}
	}
	if err := t.setClassShares(ctx, pod, at); err != nil && !gone(err) {
		errs = append(errs, fmt.Errorf("setting the CPU shares of cgroup %s: %w", path.Dir(at.path), err))
	}
	if err := t.removeEmpty(ctx, at); err != nil {
		errs = append(errs, fmt.Errorf("removing cgroups above %s: %w", at.path, err))
	}
	return errors.Join(errs...)
}

// removeEmpty removes the cgroups above the location that have no pods.
func (t Tree) removeEmpty(ctx context.Context, at location) error {
	if at.slice != "" {
		lock, err := flock.Open(t.dirs["cpu"], unix.LOCK_EX)
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }()
	}
	for up := at.above(); up.path != path.Join("/", t.base); up = up.above() {
		if empty, err := t.empty(up.path); err != nil || !empty {
			return err
		}
		if up.slice != "" {
			if err := t.units.Stop(ctx, up.slice); err != nil {
				return err
			}
		}
		for _, root := range t.hierarchies() {
			// What systemd has removed, or others still use, stays as it is.
			_ = os.Remove(filepath.Join(root, up.shims().path))
			_ = os.Remove(filepath.Join(root, up.path))
		}
	}
	return nil
}

// removeAll removes the cgroup dir after those below it. The files in a cgroup cannot be
// removed and need not be.
func removeAll(dir string) error {
	below, err := children(dir, 0)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range below {
		if err := removeAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
