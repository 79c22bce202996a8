// Package payload lays out the files of configMap, secret, downwardAPI and projected
// volumes, and changes them as a whole.
package payload

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// File is one file of a volume.
type File struct {
	Data []byte
	Mode fs.FileMode // permission bits
	// Owner is the user id of the file, nil for this process's.
	Owner *int64
}

// Files maps a relative path to the file there.
type Files map[string]File

// The names that the layout keeps for itself, and its limits, in bytes
// (pkg/volume/util.AtomicWriter).
const (
	dataDir    = "..data"
	newDataDir = "..data_tmp"
	maxPath    = 4096
	maxElement = 255
	dirMode    = 0o755
)

// Write makes dir hold exactly the files. They are in a directory of their own, to which
// the link ..data points, and each first element of a path is a link into ..data: readers
// see all of the old files or all of the new ones. Nothing is written when nothing has
// changed. dir must exist.
func Write(dir string, files Files) error {
	if err := Check(files); err != nil {
		return err
	}
	old, err := os.Readlink(filepath.Join(dir, dataDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if old != "" {
		if same, err := equal(filepath.Join(dir, old), files); err != nil || same {
			return errors.Join(err, linkAll(dir, files))
		}
	}
	fresh, err := writeFresh(dir, files)
	if err != nil {
		return err
	}
	if err := swap(dir, fresh); err != nil {
		return errors.Join(err, os.RemoveAll(filepath.Join(dir, fresh)))
	}
	if err := linkAll(dir, files); err != nil {
		return err
	}
	return sweep(dir, fresh, files)
}

// Check refuses names that the layout could not hold or that lead out of it, and a file in
// the place of a directory.
func Check(files Files) error {
	for _, p := range slices.Sorted(maps.Keys(files)) {
		switch {
		case p == "" || filepath.IsAbs(p) || p != filepath.Clean(p) || p == ".":
			return fmt.Errorf("invalid path %q: must be a clean relative path", p)
		case len(p) > maxPath:
			return fmt.Errorf("invalid path: must be at most %d bytes", maxPath)
		case strings.HasPrefix(p, ".."):
			return fmt.Errorf("invalid path %q: must not start with '..'", p)
		case strings.ContainsRune(p, 0):
			return fmt.Errorf("invalid path %q: must not contain a NUL byte", p)
		}
		for above := filepath.Dir(p); above != "."; above = filepath.Dir(above) {
			if _, ok := files[above]; ok {
				return fmt.Errorf("invalid path %q: %q is a file", p, above)
			}
		}
		for e := range strings.SplitSeq(p, "/") {
			if len(e) > maxElement {
				return fmt.Errorf("invalid path %q: an element must be at most %d bytes", p, maxElement)
			}
		}
	}
	return nil
}

// equal reports whether the directory holds exactly the files.
func equal(dir string, files Files) (bool, error) {
	seen, same := 0, true
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		seen++
		if same, err = equalFile(dir, path, files); err == nil && !same {
			return fs.SkipAll
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return same && seen == len(files), err
}

func equalFile(dir, path string, files Files) (bool, error) {
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return false, err
	}
	want, ok := files[rel]
	if !ok {
		return false, nil
	}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != want.Mode.Perm() {
		return false, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && want.Owner != nil && int64(st.Uid) != *want.Owner {
		return false, nil
	}
	data, err := os.ReadFile(path)
	return bytes.Equal(data, want.Data), err
}

// writeFresh writes the files into a new directory in dir and returns its name.
func writeFresh(dir string, files Files) (string, error) {
	fresh, err := os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return "", err
	}
	err = os.Chmod(fresh, dirMode)
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if err == nil {
			err = writeOne(fresh, p, files[p])
		}
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(fresh))
	}
	return filepath.Base(fresh), nil
}

func writeOne(dir, name string, f File) error {
	path := filepath.Join(dir, name)
	for parent := filepath.Dir(name); parent != "."; parent = filepath.Dir(parent) {
		if err := os.MkdirAll(filepath.Join(dir, parent), dirMode); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(dir, parent), dirMode); err != nil {
			return err
		}
	}
	if err := os.WriteFile(path, f.Data, f.Mode.Perm()); err != nil {
		return err
	}
	if err := os.Chmod(path, f.Mode.Perm()); err != nil || f.Owner == nil { // whatever the umask took away
		return err
	}
	return os.Lchown(path, int(*f.Owner), -1)
}

// swap makes ..data point to the new directory, in one step.
func swap(dir, fresh string) error {
	next := filepath.Join(dir, newDataDir)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(fresh, next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, dataDir))
}

// linkAll makes the links that users see.
func linkAll(dir string, files Files) error {
	for p := range files {
		first, _, _ := strings.Cut(p, "/")
		err := os.Symlink(filepath.Join(dataDir, first), filepath.Join(dir, first))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// sweep removes links to what is no more and the directories of earlier writes.
func sweep(dir, current string, files Files) error {
	keep := map[string]bool{dataDir: true, current: true}
	for p := range files {
		first, _, _ := strings.Cut(p, "/")
		keep[first] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
