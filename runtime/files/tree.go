package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/engine"
)

// nobody is whom files belong to whose owner a user namespace does not have, as for the kernel (overflowuid).
const nobody = 65534

// maxLinks is how many links of the last part of a path are followed, as by the kernel.
const maxLinks = 40

// Tree is the file system of this machine, or that of a container.
type Tree struct {
	root *os.File // nil for that of this machine
	// mapped says that users and groups from 0 on are the host's from first on.
	mapped bool
	first  int
	own    bool    // files can be given to others
	writer *thread // makes files; nil if any thread can
}

// Local returns the file system of this machine. Its paths may be relative.
func Local() *Tree { return &Tree{own: os.Geteuid() == 0} }

// Container returns the file system of a container, which the caller closes.
func Container(f engine.Files) (*Tree, error) {
	t := &Tree{root: f.Root, mapped: f.UserNS, first: int(f.FirstID), own: os.Geteuid() == 0}
	if !t.mapped {
		return t, nil
	}
	var err error
	if t.writer, err = userThread(t.first); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return t, nil
}

// Close ends the work of a tree. The file system of the container is still open.
func (t *Tree) Close() {
	if t.writer != nil {
		t.writer.close()
	}
}

// Path returns the path as a source and as a target.
func (t *Tree) Path(name string) *Path { return &Path{tree: t, name: name} }

// Path is a path in a tree.
type Path struct {
	tree *Tree
	name string
}

// open opens a path, whose links do not lead out of a container.
func (t *Tree) open(name string, flags int) (int, error) {
	if t.root == nil {
		fd, err := retried(func() (int, error) { return unix.Open(name, flags|unix.O_CLOEXEC, 0) })
		return fd, pathError("open", name, err)
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := retried(func() (int, error) { return unix.Openat2(int(t.root.Fd()), relative(name), &how) })
	return fd, pathError("open", name, err)
}

// relative returns a path in a container as it is below its root directory, where all paths of docker's begin.
func relative(name string) string {
	if name = strings.TrimLeft(name, "/"); name == "" {
		return "."
	}
	return name
}

// retried calls an operation again that was interrupted, or that the kernel gave up because something was renamed
// meanwhile.
func retried(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}

// pathError says which path an error is about.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// location is a file in its directory. The caller closes the directory.
type location struct {
	dir  int // a handle
	name string
	kind Kind
}

// locate finds what is at a path. Links are followed.
func (t *Tree) locate(name string) (location, error) {
	for range maxLinks {
		parent, base := path.Split(strings.TrimRight(name, "/"))
		if base == "" || base == "." || base == ".." { // a directory, if anything
			parent, base = name, "."
		}
		if parent == "" {
			parent = "."
		}
		dir, err := t.open(parent, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return location{}, err
		}
		at := location{dir: dir, name: base}
		var st unix.Stat_t
		err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		if at.kind = kindOf(st.Mode); errors.Is(err, unix.ENOENT) {
			at.kind, err = Absent, nil
		}
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK {
			return at, nil
		}
		var link string
		if err == nil {
			link, err = readLink(dir, base)
		}
		_ = unix.Close(dir)
		if err != nil {
			return location{}, pathError("stat", name, err)
		}
		if !path.IsAbs(link) {
			link = parent + "/" + link // not cleaned: a part before ".." may be a link
		}
		name = link
	}
	return location{}, pathError("open", name, unix.ELOOP)
}

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFREG:
		return File
	}
	return Special
}

func readLink(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// Look returns what is at the path.
func (p *Path) Look(context.Context) (Kind, error) {
	at, err := p.tree.locate(p.name)
	if err != nil {
		return Absent, err
	}
	_ = unix.Close(at.dir)
	return at.kind, nil
}

// Slash reports whether the path is that of a directory, by its end.
func (p *Path) Slash() bool { return IsDirectory(p.name) }

// IsDirectory reports whether a path can only be that of a directory, by its end.
func IsDirectory(name string) bool {
	base := path.Base(name)
	return name == "" || strings.HasSuffix(name, "/") || base == "." || base == ".."
}

// Open opens the directory at the path, or the one that has it.
func (p *Path) Open(_ context.Context, into bool) (Sink, string, error) {
	if into {
		dir, err := p.tree.open(p.name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return nil, "", err
		}
		return newWriter(p.tree, dir), "", nil
	}
	at, err := p.tree.locate(p.name)
	if err != nil {
		return nil, "", err
	}
	return newWriter(p.tree, at.dir), at.name, nil
}

// Top says what the path means as a source.
func (p *Path) Top() Top { return TopOf(p.name) }

// TopOf says what a path means as a source: one that ends in "." stands for the contents of a directory, and so does
// the root directory.
func TopOf(name string) Top {
	base := path.Base(path.Clean("/" + name))
	end := name[strings.LastIndex(name, "/")+1:]
	return Top{Base: base, Contents: end == "." || base == "/"}
}

// idOf returns an owner of a file as the tree has it.
func (t *Tree) idOf(id uint32) int {
	switch n := int(id) - t.first; {
	case !t.mapped || n < 0: // what an image has is not mapped when its container has ended
		return int(id)
	case n < engine.UserIDs:
		return n
	}
	return nobody
}

// hostID returns the host's user or group for one of the tree.
func (t *Tree) hostID(id int) int {
	if !t.mapped {
		return id
	}
	if id < 0 || id >= engine.UserIDs {
		id = nobody
	}
	return t.first + id
}

// do calls f on a thread that can make files.
func (t *Tree) do(f func() error) error {
	if t.writer == nil {
		return f()
	}
	return t.writer.do(f)
}
