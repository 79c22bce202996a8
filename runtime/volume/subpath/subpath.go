// Package subpath opens a path inside a volume so that nothing in the volume, which a
// container may have written, can lead out of it.
package subpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrEscape says that a path leads out of its volume.
var ErrEscape = errors.New("the path leads out of the volume")

// Open returns a handle (O_PATH) on sub, a relative path inside the directory root.
// Directories that are missing are made, with the mode of root. Links inside the volume are
// followed as long as they stay in it; one that leaves it, an absolute one too, is
// ErrEscape. The caller closes the file. What it refers to cannot be exchanged afterwards,
// which is why a mount must be made from the handle and not from the path.
func Open(root, sub string) (*os.File, error) { return open(root, sub, true) }

// OpenDir is like Open for a volume that nobody may write: it makes nothing, and sub must
// be a directory.
func OpenDir(root, sub string) (*os.File, error) {
	f, err := open(root, sub, false)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: sub, Err: unix.ENOTDIR}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func open(root, sub string, create bool) (*os.File, error) {
	if err := Check(sub); err != nil {
		return nil, err
	}
	base, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer func() { _ = unix.Close(base) }()
	fd, err := openAt(base, sub)
	if create && errors.Is(err, unix.ENOENT) {
		if err = makeAll(base, sub); err == nil {
			fd, err = openAt(base, sub)
		}
	}
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) {
		err = ErrEscape
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(root, sub), Err: err}
	}
	return os.NewFile(uintptr(fd), sub), nil
}

// Check refuses what can be seen to be no path inside a volume.
func Check(sub string) error {
	if filepath.IsAbs(sub) {
		return fmt.Errorf("subPath %q must not be an absolute path", sub)
	}
	for part := range strings.SplitSeq(sub, "/") {
		if part == ".." {
			return fmt.Errorf("subPath %q must not contain '..'", sub)
		}
	}
	if strings.ContainsRune(sub, 0) {
		return fmt.Errorf("subPath %q must not contain a NUL byte", sub)
	}
	return nil
}

func openAt(base int, path string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		// EAGAIN: a rename somewhere raced with the walk; the kernel asks to try again.
		fd, err := unix.Openat2(base, path, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// makeAll makes the directories of path that are missing. Each is made in its parent's
// handle, so that it cannot land outside.
func makeAll(base int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(base, &st); err != nil {
		return err
	}
	mode := st.Mode & 0o7777
	done := "."
	for part := range strings.SplitSeq(filepath.Clean(path), "/") {
		next := filepath.Join(done, part)
		fd, err := openAt(base, next)
		if errors.Is(err, unix.ENOENT) {
			err = makeAt(base, done, part, mode)
			fd = -1
		}
		if err != nil {
			return err
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		done = next
	}
	return nil
}

func makeAt(base int, parent, name string, mode uint32) error {
	dir, err := openAt(base, parent)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	if err := unix.Mkdirat(dir, name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	made, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(made) }()
	// Whatever the umask took away.
	return unix.Fchmod(made, mode)
}
