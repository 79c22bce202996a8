package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Mounter makes and removes mounts.
type Mounter interface {
	// Mount is mount(2).
	Mount(source, target, fstype string, flags uintptr, data string) error
	// MountNFS mounts an NFS export. The error is errNoNFS when the machine cannot.
	MountNFS(ctx context.Context, source, target string, options []string) error
	// MountDisk mounts the ext4 file system of a block device. It makes one if the device is empty, and checks it otherwise.
	MountDisk(ctx context.Context, device, target string, readOnly bool) error
	// MapUsers makes an idmapped mount of the tree at source at target for the user
	// namespace, with the propagation (MS_PRIVATE, MS_SLAVE, or 0 for that of the source),
	// and returns the mount options that must be kept. When the file system does not support
	// it the error wraps errNotMappable.
	MapUsers(source, target string, userns *os.File, propagation uint64) ([]string, error)
	// Unmount detaches the mount, even while it is in use. A target that is not mounted is
	// not an error.
	Unmount(target string) error
	// Mounted reports whether something is mounted at target, which must exist.
	Mounted(target string) (bool, error)
	// Lookup returns the mount that contains path; it follows links.
	Lookup(path string) (*mountinfo.Info, error)
	// Below returns all mounts at or below the directories, in the order in which they can be
	// unmounted. Directories that do not exist are ignored.
	Below(dirs ...string) ([]*mountinfo.Info, error)
}

// HostMounts is the Mounter of this process's mount namespace.
type HostMounts struct{}

var _ Mounter = HostMounts{}

// Mount is mount(2).
func (HostMounts) Mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return &fs.PathError{Op: "mount", Path: target, Err: err}
	}
	return nil
}

// Unmount detaches the mount at target and does not follow a link there.
func (HostMounts) Unmount(target string) error {
	err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &fs.PathError{Op: "unmount", Path: target, Err: err}
}

// Mounted asks the kernel about the directory, which is far cheaper than reading all mounts.
func (HostMounts) Mounted(target string) (bool, error) { return mountinfo.Mounted(target) }

// Lookup reads the mounts from /proc/self/mountinfo.
func (HostMounts) Lookup(path string) (*mountinfo.Info, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	infos, err := mountinfo.GetMounts(above(path))
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	at := &mountinfo.Info{}
	for _, i := range infos {
		// Of two mounts on one target the later one is on top.
		if len(i.Mountpoint) >= len(at.Mountpoint) {
			at = i
		}
	}
	return at, nil
}

// above selects the mounts at a path or above it. mountinfo.ParentsFilter also takes /a for a parent
// of /ab.
func above(path string) mountinfo.FilterFunc {
	return func(i *mountinfo.Info) (skip, stop bool) {
		return !within(path, strings.TrimSuffix(i.Mountpoint, "/")), false
	}
}

// Below reads the mounts from /proc/self/mountinfo.
func (HostMounts) Below(dirs ...string) ([]*mountinfo.Info, error) {
	found := make([]string, 0, len(dirs))
	for _, dir := range dirs {
		path, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, path)
	}
	if len(found) == 0 {
		return nil, nil
	}
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return !slices.ContainsFunc(found, func(dir string) bool { return within(i.Mountpoint, dir) }), false
	})
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	// Of two mounts on one target the later one is on top.
	slices.Reverse(infos)
	slices.SortStableFunc(infos, func(a, b *mountinfo.Info) int { return cmp.Compare(len(b.Mountpoint), len(a.Mountpoint)) })
	return infos, nil
}

// A shared mount propagates mount events to its peers, a slave receives those of a shared one.
func isShared(i *mountinfo.Info) bool { return strings.Contains(i.Optional, "shared:") }
func isSlave(i *mountinfo.Info) bool  { return strings.Contains(i.Optional, "master:") }

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// UnmountBelow unmounts every mount at or below the directories, and no other: shared mounts
// are made private first, or unmounting what is below them would propagate to their peers.
func UnmountBelow(m Mounter, dirs ...string) error {
	points, err := m.Below(dirs...)
	if err != nil {
		return err
	}
	for _, p := range points {
		if !isShared(p) {
			continue
		}
		err := m.Mount("", p.Mountpoint, "", unix.MS_PRIVATE, "")
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, p := range points {
		if err := m.Unmount(p.Mountpoint); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes dir and its content. Unlike os.RemoveAll it never enters a mount: a
// directory on which something is mounted is an error, and the mounted file system is not
// touched. Links are removed and not followed. An absent dir is not an error.
func removeAll(dir string) error {
	parent, err := os.Open(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	if err := removeAt(int(parent.Fd()), filepath.Base(dir)); err != nil {
		return &fs.PathError{Op: "remove", Path: dir, Err: err}
	}
	return nil
}

// removeAt removes the entry name of the directory that dirfd refers to.
func removeAt(dirfd int, name string) error {
	err := unix.Unlinkat(dirfd, name, 0)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w", name, err)
	}
	fd, err := unix.Openat2(dirfd, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("%s: something is mounted there: %w", name, unix.EBUSY)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	dir := os.NewFile(uintptr(fd), name)
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, n := range names {
		if err := removeAt(fd, n); err != nil {
			return fmt.Errorf("%s/%w", name, err)
		}
	}
	if err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
