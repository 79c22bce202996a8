package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// namesAtOnce is how many names of a directory are in memory.
	namesAtOnce = 1024
	// maxKernelFile bounds what is read of a file whose size the kernel does not know, in bytes.
	maxKernelFile = 4 << 20
	// xattrPrefix is that of the extended attributes that are copied, and xattrRecord that of their PAX records.
	xattrPrefix = "user."
	xattrRecord = "SCHILY.xattr."
)

// kernelFiles are the file systems whose files say something about the kernel and its processes.
var kernelFiles = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEVPTS_SUPER_MAGIC,
	unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC,
	unix.PSTOREFS_MAGIC, mqueueMagic, configfsMagic,
}

const (
	mqueueMagic   = 0x19800202
	configfsMagic = 0x62656570
)

// walker reads a tree.
type walker struct {
	tree *Tree
	put  func(Entry) error
	// seen has the names of files with several links.
	seen map[fileID]string
}

// Walk reads what is at the path. A link at its end is not followed, unless the path says that it is a directory.
func (p *Path) Walk(_ context.Context, put func(Entry) error) error {
	flags := unix.O_PATH | unix.O_NOFOLLOW
	if p.Slash() {
		flags = unix.O_PATH | unix.O_DIRECTORY
	}
	fd, err := p.tree.open(p.name, flags)
	if err != nil {
		return err
	}
	w := walker{tree: p.tree, put: put, seen: map[fileID]string{}}
	return w.visit(fd, ".")
}

// visit reads the file of a handle, which it closes, and if it is a directory everything below it.
func (w *walker) visit(fd int, name string) error {
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return pathError("stat", name, err)
	}
	e := w.entry(name, &st)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return w.file(fd, &st, e)
	case unix.S_IFDIR:
		return w.directory(fd, &st, e)
	case unix.S_IFLNK:
		e.Typeflag = tar.TypeSymlink
		var err error
		if e.Linkname, err = readLink(fd, ""); err != nil {
			return pathError("readlink", name, err)
		}
	case unix.S_IFIFO:
		e.Typeflag = tar.TypeFifo
	case unix.S_IFCHR:
		e.Typeflag = tar.TypeChar
	case unix.S_IFBLK:
		e.Typeflag = tar.TypeBlock
	case unix.S_IFSOCK:
		e.Typeflag = typeSocket
	}
	return w.put(e)
}

func (w *walker) entry(name string, st *unix.Stat_t) Entry {
	return Entry{Header: tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: w.tree.idOf(st.Uid), Gid: w.tree.idOf(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX,
	}}
}

func identity(st *unix.Stat_t) fileID { return fileID{st.Dev, st.Ino} }

func (w *walker) file(fd int, st *unix.Stat_t, e Entry) error {
	e.Typeflag, e.Size = tar.TypeReg, st.Size
	if st.Nlink > 1 {
		if first, ok := w.seen[identity(st)]; ok {
			e.Typeflag, e.Linkname, e.Size = tar.TypeLink, first, 0
			return w.put(e)
		}
		w.seen[identity(st)] = e.Name
	}
	f, err := reopen(fd, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return pathError("open", e.Name, err)
	}
	defer func() { _ = f.Close() }()
	e.PAXRecords = xattrs(int(f.Fd()))
	switch {
	case isKernels(fd):
		data, err := kernelFile(f)
		if err != nil {
			return pathError("read", e.Name, err)
		}
		e.Size, e.Content = int64(len(data)), bytes.NewReader(data)
	case st.Size > 0:
		e.Content = &content{File: f, left: st.Size}
	}
	return w.put(e)
}

// reopen opens the file of a handle. Nothing can take its place meanwhile.
func reopen(fd, flags int) (*os.File, error) {
	opened, err := retried(func() (int, error) { return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(opened), "file"), nil
}

// isKernels reports whether a file is in a file system of the kernel.
func isKernels(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && slices.Contains(kernelFiles, int64(st.Type))
}

// kernelFile reads a file whose size is not known.
func kernelFile(f *os.File) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, maxKernelFile+1))
	if err == nil && len(data) > maxKernelFile {
		err = errors.New("the kernel makes its content and does not say how large it is")
	}
	return data, err
}

// xattrs returns the extended attributes that users have given to a file. Those that cannot be read are left out.
func xattrs(fd int) map[string]string {
	buf := make([]byte, 64<<10) // at most (XATTR_LIST_MAX)
	n, err := unix.Flistxattr(fd, buf)
	if err != nil || n == 0 {
		return nil
	}
	all := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(name, xattrPrefix) {
			continue
		}
		if n, err := unix.Fgetxattr(fd, name, buf); err == nil {
			all[xattrRecord+name] = string(buf[:n])
		}
	}
	return all
}

func (w *walker) directory(fd int, st *unix.Stat_t, e Entry) error {
	e.Typeflag, e.id = tar.TypeDir, identity(st)
	if isKernels(fd) {
		e.Typeflag = typeKernel
		return w.put(e)
	}
	opened, err := retried(func() (int, error) { return unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return pathError("open", e.Name, err)
	}
	f := os.NewFile(uintptr(opened), e.Name)
	defer func() { _ = f.Close() }()
	e.PAXRecords = xattrs(opened)
	if err := w.put(e); err != nil {
		return err
	}
	for {
		names, err := f.Readdirnames(namesAtOnce)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return pathError("readdir", e.Name, err)
		}
		for _, name := range names {
			child, err := unix.Openat(opened, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if errors.Is(err, fs.ErrNotExist) {
				continue // it was removed meanwhile
			}
			if err != nil {
				return pathError("open", path.Join(e.Name, name), err)
			}
			if err := w.visit(child, path.Join(e.Name, name)); err != nil {
				return err
			}
		}
	}
}

// content is what a file has, up to the size that it had when the copy began.
type content struct {
	*os.File
	at, left int64
}

func (c *content) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.EOF
	}
	n, err := unix.Pread(int(c.Fd()), p[:min(int64(len(p)), c.left)], c.at)
	if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, io.EOF
	}
	c.at, c.left = c.at+int64(n), c.left-int64(n)
	return n, nil
}

// skipHole skips the hole that comes next, if one does.
func (c *content) skipHole() int64 {
	if c.left <= 0 {
		return 0
	}
	data, err := unix.Seek(int(c.Fd()), c.at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // nothing but a hole is left
		data = c.at + c.left
	case err != nil || data <= c.at:
		return 0
	}
	n := min(data-c.at, c.left)
	c.at, c.left = c.at+n, c.left-n
	return n
}
