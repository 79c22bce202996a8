package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// chunk is how much of a file is copied at once, in bytes. So much of nothing but zeros becomes a hole.
	chunk = 256 << 10
	// newDirMode is the mode of directories while they are filled, and implied that of those that an archive
	// has only in the names of files.
	newDirMode = 0o700
	impliedDir = 0o755
)

var (
	errOntoDirectory = errors.New("cannot overwrite a directory with something else")
	errNotOntoFile   = errors.New("cannot overwrite something else with a directory")
)

// writer makes files below a directory, without following any link.
type writer struct {
	tree *Tree
	base int // a handle of the directory
	made []madeDir
	buf  []byte
}

// madeDir is a directory that was made, and gets its owner and mode when it is complete.
type madeDir struct {
	name   string
	header tar.Header
	id     fileID
}

func newWriter(t *Tree, dir int) *writer {
	return &writer{tree: t, base: dir, buf: make([]byte, chunk)}
}

func (w *writer) id() fileID {
	var st unix.Stat_t
	if err := unix.Fstat(w.base, &st); err != nil {
		return fileID{}
	}
	return identity(&st)
}

// Put makes a file with its owner, mode and time. It replaces a file of the same name at once, when it is complete.
// Directories that are there stay as they are.
func (w *writer) Put(_ context.Context, e Entry) error {
	return w.tree.do(func() error {
		dir, err := w.parent(path.Dir(e.Name))
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(dir) }()
		name := path.Base(e.Name)
		switch e.Typeflag {
		case tar.TypeDir:
			return w.directory(dir, name, &e.Header)
		case tar.TypeReg:
			return w.file(dir, name, &e)
		case tar.TypeSymlink:
			return w.replace(dir, name, func(temp string) error {
				if err := unix.Symlinkat(e.Linkname, dir, temp); err != nil {
					return err
				}
				if err := w.own(dir, temp, &e.Header, unix.AT_SYMLINK_NOFOLLOW); err != nil {
					return err
				}
				return setTime(dir, temp, e.ModTime)
			})
		case tar.TypeLink:
			return w.link(dir, name, e.Linkname)
		}
		return errors.New("it cannot be copied")
	})
}

// parent opens a directory below the base. Those that are missing are made: an archive need not have them.
func (w *writer) parent(name string) (int, error) {
	at, err := openBelow(w.base, ".")
	if err != nil || name == "." {
		return at, err
	}
	for part := range strings.SplitSeq(name, "/") {
		next, err := openBelow(at, part)
		if errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(at, part, impliedDir); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = openBelow(at, part)
			}
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, pathError("open", part, err)
		}
		at = next
	}
	return at, nil
}

// openBelow opens a handle of a directory in another one, but not of one that a link leads to.
func openBelow(dir int, name string) (int, error) {
	return retried(func() (int, error) {
		return unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

func (w *writer) directory(dir int, name string, h *tar.Header) error {
	err := unix.Mkdirat(dir, name, newDirMode)
	exists := errors.Is(err, unix.EEXIST)
	if err != nil && !exists {
		return err
	}
	made, err := openBelow(dir, name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return errNotOntoFile
	}
	if err != nil || exists {
		_ = unix.Close(made)
		return err
	}
	defer func() { _ = unix.Close(made) }()
	var st unix.Stat_t
	if err := unix.Fstat(made, &st); err != nil {
		return err
	}
	w.made = append(w.made, madeDir{h.Name, *h, identity(&st)})
	return nil
}

// file makes a regular file.
func (w *writer) file(dir int, name string, e *Entry) error {
	if inPlace, err := w.isMounted(dir, name); err != nil {
		return err
	} else if inPlace {
		return w.overwrite(dir, name, e)
	}
	return w.replace(dir, name, func(temp string) error {
		fd, err := unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), temp)
		defer func() { _ = f.Close() }()
		if err := w.fill(f, e.Content); err != nil {
			return err
		}
		if err := w.finish(int(f.Fd()), &e.Header); err != nil {
			return err
		}
		return f.Close()
	})
}

// isMounted reports whether a file is a mount, such as the hosts file of a container, which no other can replace.
func (w *writer) isMounted(dir int, name string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = errOntoDirectory
	}
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 && st.Mode&unix.S_IFMT == unix.S_IFREG, err
}

// overwrite writes into a file that is there, which keeps its owner and mode.
func (w *writer) overwrite(dir int, name string, e *Entry) error {
	handle, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(handle) }()
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errOntoSpecial
	}
	f, err := reopen(handle, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := w.fill(f, e.Content); err != nil {
		return err
	}
	return f.Close()
}

// temps counts the temporary names of this process.
var temps atomic.Int64

// replace calls create with another name in the directory, and gives what it has made the right one.
func (w *writer) replace(dir int, name string, create func(temp string) error) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return errOntoDirectory
	}
	temp := fmt.Sprintf(".runonce-cp-%d-%s", os.Getpid(), strconv.FormatInt(time.Now().UnixNano()+temps.Add(1), 36))
	err := create(temp)
	if err == nil {
		err = unix.Renameat(dir, temp, dir, name)
	}
	if !errors.Is(err, unix.EEXIST) {
		_ = unix.Unlinkat(dir, temp, 0) // it is there after an error, or if both were links to one file
	}
	return err
}

// fill writes a content to an empty file, with holes for zeros.
func (w *writer) fill(f *os.File, from io.Reader) error {
	if from == nil {
		return nil
	}
	var at int64
	for {
		if h, ok := from.(holey); ok {
			at += h.skipHole()
		}
		n, err := io.ReadFull(from, w.buf)
		data := w.buf[:n]
		if n > 0 && !isZero(data) {
			if _, werr := f.WriteAt(data, at); werr != nil {
				return werr
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return f.Truncate(at)
		case err != nil:
			return err
		}
	}
}

// zeros is what a hole reads as.
var zeros [chunk]byte

func isZero(p []byte) bool { return bytes.Equal(p, zeros[:len(p)]) }

// finish gives a file that was made its owner, mode, extended attributes and time.
func (w *writer) finish(fd int, h *tar.Header) error {
	if err := w.own(fd, "", h, unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	mode := uint32(h.Mode & 0o7777)
	if w.tree.root == nil && h.Typeflag == tar.TypeReg {
		// Else a container could give its programs the rights of a user of this machine.
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	for name, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(name, xattrRecord); ok && strings.HasPrefix(name, xattrPrefix) {
			if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
				return err
			}
		}
	}
	return setTime(fd, "", h.ModTime)
}

// own gives a file its owner, if this process can.
func (w *writer) own(dir int, name string, h *tar.Header, flags int) error {
	if !w.tree.own {
		return nil
	}
	return unix.Fchownat(dir, name, w.tree.hostID(h.Uid), w.tree.hostID(h.Gid), flags)
}

func setTime(dir int, name string, at time.Time) error {
	if at.IsZero() {
		return nil
	}
	modified, err := unix.TimeToTimespec(at)
	if err != nil {
		return fmt.Errorf("setting the time %s: %w", at, err)
	}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, modified}, flags)
}

// link makes a hard link to a file that this copy has made, or a copy of it where there can be none.
func (w *writer) link(dir int, name, to string) error {
	if to == "" {
		return errors.New("it is a link to no file")
	}
	parent, err := w.parent(path.Dir(to))
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(parent) }()
	base := path.Base(to)
	err = w.replace(dir, name, func(temp string) error { return unix.Linkat(parent, base, dir, temp, 0) })
	if !slices.ContainsFunc([]error{unix.EXDEV, unix.EMLINK, unix.EPERM}, func(e error) bool { return errors.Is(err, e) }) {
		return err
	}
	handle, err := unix.Openat(parent, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	copied := walker{tree: w.tree, seen: map[fileID]string{}, put: func(e Entry) error {
		if e.Typeflag != tar.TypeReg {
			return fmt.Errorf("cannot link to %q", to)
		}
		return w.file(dir, name, &e)
	}}
	return copied.visit(handle, name)
}

// Close gives the directories that were made their owners and modes, those below others first.
func (w *writer) Close() error {
	defer func() { _ = unix.Close(w.base) }()
	return w.tree.do(func() error {
		var errs []error
		for _, d := range slices.Backward(w.made) {
			if err := w.complete(d); err != nil {
				errs = append(errs, fmt.Errorf("%q: %w", d.name, err))
			}
		}
		return errors.Join(errs...)
	})
}

// complete completes a directory that was made, unless there is another one now.
func (w *writer) complete(d madeDir) error {
	dir, err := w.parent(d.name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	opened, err := retried(func() (int, error) { return unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(opened) }()
	var st unix.Stat_t
	if err := unix.Fstat(opened, &st); err != nil || identity(&st) != d.id {
		return err
	}
	return w.finish(opened, &d.header)
}
