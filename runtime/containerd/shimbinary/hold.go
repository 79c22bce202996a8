package shimbinary

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/flock"
)

// Hold does what Unpack does and keeps Sweep from removing the program until release is
// called or this process ends.
func Hold(bin string) (path string, release func() error, err error) {
	return hold(bin, Unpack)
}

func hold(bin string, unpack func(string) (string, error)) (path string, release func() error, err error) {
	for {
		if path, err = unpack(bin); err != nil {
			return "", nil, err
		}
		dir, err := flock.Open(filepath.Dir(path), unix.LOCK_SH)
		if errors.Is(err, fs.ErrNotExist) {
			continue // swept meanwhile
		}
		if err != nil {
			return "", nil, fmt.Errorf("holding the shim: %w", err)
		}
		if current(dir, path) {
			return path, dir.Close, nil
		}
		if err := dir.Close(); err != nil {
			return "", nil, fmt.Errorf("holding the shim: %w", err)
		}
	}
}

// current reports whether the program exists, in the directory that is open.
func current(dir *os.File, path string) bool {
	held, err := dir.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(filepath.Dir(path))
	if err != nil || !os.SameFile(held, there) {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}

// Sweep removes the programs of other versions that nobody needs any more: no process holds
// or runs them, and recorded reports that no known container was created with them.
func Sweep(bin string, recorded func(path string) bool) error {
	entries, err := os.ReadDir(bin)
	if err != nil {
		return fmt.Errorf("looking for old shims: %w", err)
	}
	if len(entries) < 2 {
		return nil
	}
	running := programs()
	var errs []error
	for _, e := range entries {
		path := filepath.Join(bin, e.Name(), Program)
		if !e.IsDir() || len(e.Name()) != 64 || running[path] || recorded(path) {
			continue
		}
		errs = append(errs, remove(filepath.Dir(path)))
	}
	return errors.Join(errs...)
}

// remove removes the directory unless somebody holds it.
func remove(dir string) error {
	f, err := flock.Open(dir, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && f != nil {
		defer func() { _ = f.Close() }()
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("removing an old shim: %w", err)
	}
	return nil
}

// programs returns the paths of all programs that run on this machine.
func programs() map[string]bool {
	all := map[string]bool{}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return all
	}
	for _, l := range links {
		// Processes end meanwhile, and kernel threads have no program.
		if path, err := os.Readlink(l); err == nil {
			all[strings.TrimSuffix(path, " (deleted)")] = true
		}
	}
	return all
}
