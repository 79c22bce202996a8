package volume

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// MapUsers makes idmapped mounts of the container's bind mounts, for the pod's user namespace,
// whose file is userNS: what belongs to root on the host belongs to the container's root,
// which is an unprivileged user of the host. The OCI runtime could do this itself, but runc
// only since 1.2. The sources of the mounts become the idmapped ones.
func (m *Manager) MapUsers(pod *v1.Pod, container, userNS string, mounts []specs.Mount) error {
	ns, err := os.Open(userNS)
	if err != nil {
		return fmt.Errorf("opening the user namespace: %w", err)
	}
	defer func() { _ = ns.Close() }()
	for i := range mounts {
		if mounts[i].Type != "bind" {
			continue
		}
		target := m.dir(pod, idmapDir, container, strconv.Itoa(i))
		if err := m.mapUsers(&mounts[i], target, ns); err != nil {
			return fmt.Errorf("mapping the users of %s: %w", mounts[i].Destination, err)
		}
	}
	return nil
}

func (m *Manager) mapUsers(bind *specs.Mount, target string, ns *os.File) error {
	info, err := os.Stat(bind.Source)
	if err != nil {
		return err
	}
	if err := m.prepareTarget(target, info.IsDir()); err != nil {
		return err
	}
	flags, err := m.Mounter.MapUsers(bind.Source, target, ns, propagation(bind.Options))
	if err != nil {
		return err
	}
	bind.Source = target
	// A user namespace may not remove these, so the runtime has to keep them.
	bind.Options = append(bind.Options[:len(bind.Options):len(bind.Options)], flags...)
	return nil
}

// propagation returns the propagation for the idmapped mount, which the mount in the
// container is made from, so that the latter can have the one in its options.
func propagation(options []string) uint64 {
	for _, p := range propagations {
		if slices.Contains(options, p.option) {
			return uint64(p.flag)
		}
	}
	return unix.MS_PRIVATE
}

// errNotMappable says that the kernel cannot make idmapped mounts of a file system.
var errNotMappable = failure.FailedMountf("the kernel has no idmapped mounts of this file system")

// MapUsers mounts the tree at source at target, with the mounts below, and maps the IDs of its
// files, but not those of the mounts below, by the user namespace. It returns the mount options
// that it has inherited from its source.
func (HostMounts) MapUsers(source, target string, userns *os.File, propagation uint64) ([]string, error) {
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
		return nil, fmt.Errorf("%s: %w (type 0x%x): %w", source, errNotMappable, st.Type, err)
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
