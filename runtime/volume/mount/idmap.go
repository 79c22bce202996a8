package mount

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/failure"
)

// ErrNotMappable says that the kernel cannot make idmapped mounts of a file system.
var ErrNotMappable = failure.FailedMountf("the kernel has no idmapped mounts of this file system")

// MapUsers mounts the tree at source at target, with the mounts below, and maps the IDs of its
// files, but not those of the mounts below, by the user namespace. It returns the mount options
// that it has inherited from its source.
func (Host) MapUsers(source, target string, userns *os.File, propagation uint64) ([]string, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, &fs.PathError{Op: "open_tree", Path: source, Err: err}
	}
	defer func() { _ = unix.Close(tree) }()
	kind := unix.MountAttr{Propagation: propagation}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &kind); err != nil {
		return nil, &fs.PathError{Op: "mount_setattr", Path: source, Err: err}
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(tree, &st); err != nil {
		return nil, &fs.PathError{Op: "fstatfs", Path: source, Err: err}
	}
	mapped := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &mapped); err != nil {
		return nil, fmt.Errorf("%s: %w (type 0x%x): %w", source, ErrNotMappable, st.Type, err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, &fs.PathError{Op: "move_mount", Path: target, Err: err}
	}
	return lockedOptions(st.Flags), nil
}

// lockedOptions returns the options of a mount that a copy in a user namespace must keep.
func lockedOptions(flags int64) []string {
	var options []string
	for _, o := range []struct {
		flag int64
		name string
	}{{unix.ST_NOSUID, "nosuid"}, {unix.ST_NODEV, "nodev"}, {unix.ST_NOEXEC, "noexec"}, {unix.ST_NOATIME, "noatime"}, {unix.ST_RDONLY, "ro"}} {
		if flags&o.flag != 0 {
			options = append(options, o.name)
		}
	}
	return options
}
