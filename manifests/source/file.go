package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// dirFS is a directory of the machine. Unlike os.DirFS it opens without blocking, for
// the case that a file is replaced by a FIFO between being looked at and being opened.
type dirFS string

// Open opens a file for reading.
func (d dirFS) Open(name string) (fs.File, error) {
	return fileFS{}.Open(filepath.Join(string(d), name))
}

// Stat follows links.
func (d dirFS) Stat(name string) (fs.FileInfo, error) {
	return os.Stat(filepath.Join(string(d), name))
}

// ReadDir returns the entries in byte order of their names.
func (d dirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return os.ReadDir(filepath.Join(string(d), name))
}

// fileFS opens any path of the machine.
type fileFS struct{}

// Open opens a file for reading.
func (fileFS) Open(name string) (fs.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// reason drops the path from a file system error, since a fault names it already.
func reason(err error) string {
	var p *fs.PathError
	if !errors.As(err, &p) {
		return err.Error()
	}
	switch {
	case errors.Is(p.Err, syscall.ELOOP):
		return "is a link that leads in a circle"
	case errors.Is(p.Err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(p.Err, fs.ErrPermission):
		return "may not be read"
	}
	return p.Op + ": " + p.Err.Error()
}

func kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m.IsDir():
		return "a directory"
	}
	return "no regular file"
}
