package nodeinfo

import (
	"cmp"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Filesystem is the size and the free space of a filesystem.
type Filesystem struct {
	Capacity   int64 // bytes
	Available  int64 // bytes, for processes without privileges
	Inodes     int64 // 0 when the filesystem does not count them
	InodesFree int64
	ReadOnly   bool
}

// Statfs measures the filesystem that holds path. It is the only call of this package that
// does not go through an fs.FS.
func Statfs(path string) (Filesystem, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return Filesystem{}, fmt.Errorf("measuring the filesystem of %q: %w", path, err)
	}
	unit := cmp.Or(s.Frsize, s.Bsize)
	return Filesystem{
		Capacity:   int64(s.Blocks) * unit,
		Available:  int64(s.Bavail) * unit,
		Inodes:     int64(s.Files),
		InodesFree: int64(s.Ffree),
		ReadOnly:   s.Flags&unix.ST_RDONLY != 0,
	}, nil
}
