// Package payload lays out the files of configMap, secret, downwardAPI and projected
// volumes.
package payload

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// The name that the layout keeps for itself, and its limits, in bytes
// (pkg/volume/util.AtomicWriter).
const (
	dataDir    = "..data"
	maxPath    = 4096
	maxElement = 255
	dirMode    = 0o755
)

// Write makes dir hold exactly the files, once: what is complete stays as it is. They are
// in a directory of their own, to which the link ..data points, and each first element of a
// path is a link into ..data. ..data comes last: without it, nothing was written before, or
// in part. dir must exist.
func Write(dir string, files Files) error {
	if err := Check(files); err != nil {
		return err
	}
	data := filepath.Join(dir, dataDir)
	if _, err := os.Lstat(data); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := clean(dir); err != nil {
		return err
	}
	fresh, err := writeFresh(dir, files)
	if err != nil {
		return err
	}
	if err := linkAll(dir, files); err != nil {
		return err
	}
	return os.Symlink(fresh, data)
}

// clean removes what a Write that was cut off has left.
func clean(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
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

// writeFresh writes the files into a new directory in dir and returns its name.
func writeFresh(dir string, files Files) (string, error) {
	fresh, err := os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return "", err
	}
	err = os.Chmod(fresh, dirMode)
	for p, f := range files {
		if err == nil {
			err = writeOne(fresh, p, f)
		}
	}
	return filepath.Base(fresh), err
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
