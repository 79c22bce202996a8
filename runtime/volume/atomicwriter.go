package volume

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/failure"
)

// file is a file of a volume.
type file struct {
	data []byte
	mode fs.FileMode // permission bits
	// user is the user ID of the file, nil for this process's.
	user *int64
}

// payload maps relative paths to files.
type payload map[string]file

// The name that the layout reserves, and its limits in bytes
// (pkg/volume/util.AtomicWriter).
const (
	dataDir    = "..data"
	maxPath    = 4096
	maxElement = 255
	dirMode    = 0o755
)

// writePayload writes the files to dir, which must exist, in the layout of the kubelet's
// AtomicWriter: they are in a directory of their own, to which the link ..data points, and
// each first element of a path is a link into ..data. Complete files are never changed.
// ..data is made last: without it, nothing was written before, or only a part.
func writePayload(dir string, files payload) error {
	if _, err := os.Lstat(filepath.Join(dir, dataDir)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := clean(dir); err != nil {
		return err
	}
	return replacePayload(dir, files, func(string) error { return nil })
}

// replacePayload replaces the files of dir by others, if they differ, at one instant: containers
// see either all of the old files or all of the new ones. prepare is called on the directory of
// the new ones before that.
func replacePayload(dir string, files payload, prepare func(fresh string) error) error {
	if err := validatePayload(files); err != nil {
		return err
	}
	data := filepath.Join(dir, dataDir)
	old, err := os.Readlink(data)
	if err == nil && holds(filepath.Join(dir, old), files) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh, err := os.MkdirTemp(dir, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return err
	}
	err = writeFiles(fresh, files)
	if err == nil {
		err = prepare(fresh)
	}
	if err == nil {
		err = linkAll(dir, files)
	}
	if err == nil {
		err = replaceLink(filepath.Base(fresh), data)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if old == "" {
		return nil
	}
	return errors.Join(unlinkOthers(dir, files), os.RemoveAll(filepath.Join(dir, old)))
}

// replaceLink makes a link, in place of an existing one at one instant.
func replaceLink(target, path string) error {
	next := path + "_tmp"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// holds says whether the directory has exactly the given files.
func holds(dir string, files payload) bool {
	left := len(files)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if want, ok := files[name]; err != nil || !ok || !bytes.Equal(data, want.data) {
			return errors.Join(err, fs.ErrNotExist)
		}
		left--
		return nil
	})
	return err == nil && left == 0
}

// unlinkOthers removes the links to what is not among the files.
func unlinkOthers(dir string, files payload) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		used := e.Type()&fs.ModeSymlink == 0 || strings.HasPrefix(e.Name(), "..")
		for p := range files {
			first, _, _ := strings.Cut(p, "/")
			used = used || first == e.Name()
		}
		if !used {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// clean removes what an interrupted write has left.
func clean(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// validatePayload refuses paths that the layout cannot represent or that lead out of it, and
// paths below a file.
func validatePayload(files payload) error {
	for _, p := range slices.Sorted(maps.Keys(files)) {
		switch {
		case !filepath.IsLocal(p) || p != filepath.Clean(p) || p == "." || strings.ContainsRune(p, 0):
			return failure.FailedMountf("invalid path %q: must be a clean relative path", p)
		case len(p) > maxPath:
			return failure.FailedMountf("invalid path: must be at most %d bytes", maxPath)
		case strings.HasPrefix(p, ".."):
			return failure.FailedMountf("invalid path %q: must not start with '..'", p)
		}
		for above := filepath.Dir(p); above != "."; above = filepath.Dir(above) {
			if _, ok := files[above]; ok {
				return failure.FailedMountf("invalid path %q: %q is a file", p, above)
			}
		}
		for e := range strings.SplitSeq(p, "/") {
			if len(e) > maxElement {
				return failure.FailedMountf("invalid path %q: an element must be at most %d bytes", p, maxElement)
			}
		}
	}
	return nil
}

// writeFiles writes the files into the directory.
func writeFiles(dir string, files payload) error {
	err := os.Chmod(dir, dirMode)
	for p, f := range files {
		if err == nil {
			err = writeFile(dir, p, f)
		}
	}
	return err
}

func writeFile(dir, name string, f file) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	// The umask may have removed permissions.
	for parent := filepath.Dir(path); parent != dir; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, dirMode); err != nil {
			return err
		}
	}
	if err := os.WriteFile(path, f.data, f.mode.Perm()); err != nil {
		return err
	}
	if err := os.Chmod(path, f.mode.Perm()); err != nil || f.user == nil {
		return err
	}
	return os.Lchown(path, int(*f.user), -1)
}

// linkAll makes the links that users of the volume see.
func linkAll(dir string, files payload) error {
	for p := range files {
		first, _, _ := strings.Cut(p, "/")
		err := os.Symlink(filepath.Join(dataDir, first), filepath.Join(dir, first))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
