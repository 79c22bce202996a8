package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// Remove removes the pod's cgroup with what its containers left below it, and the cgroups
// above it that are empty then. It kills nothing: a cgroup with processes is an error, and
// an absent one is not.
func (t Tree) Remove(pod *v1.Pod) error {
	p := t.Path(pod)
	if t.made != nil {
		t.made.Delete(p)
	}
	var errs []error
	for _, root := range t.hierarchies() {
		if err := removeAll(filepath.Join(root, p)); err != nil {
			errs = append(errs, fmt.Errorf("removing cgroup %s: %w", p, err))
			continue
		}
		for above := path.Dir(p); above != "/"; above = path.Dir(above) {
			if err := os.Remove(filepath.Join(root, above)); err != nil {
				break // Other pods are in it.
			}
		}
	}
	if err := t.weighClass(pod); err != nil && !gone(err) {
		errs = append(errs, fmt.Errorf("weighing cgroup %s: %w", path.Dir(p), err))
	}
	return errors.Join(errs...)
}

// removeAll removes the cgroup dir after those below it. The files in a cgroup cannot be
// removed and need not be.
func removeAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}
