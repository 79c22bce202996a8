package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// pageSize is how long the options of a mount may be for the kernel, with some reserve.
const pageSize = 4096 - 512

// flags are the options that are flags of mount(2); unset are those that clear one.
var (
	flags = map[string]uintptr{
		"bind": unix.MS_BIND, "rbind": unix.MS_BIND | unix.MS_REC, "ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID,
		"nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME,
		"relatime": unix.MS_RELATIME, "strictatime": unix.MS_STRICTATIME, "sync": unix.MS_SYNCHRONOUS, "dirsync": unix.MS_DIRSYNC,
	}
	unset = map[string]uintptr{
		"rw": unix.MS_RDONLY, "suid": unix.MS_NOSUID, "dev": unix.MS_NODEV, "exec": unix.MS_NOEXEC, "atime": unix.MS_NOATIME,
		"diratime": unix.MS_NODIRATIME, "async": unix.MS_SYNCHRONOUS, "norelatime": unix.MS_RELATIME,
		"nostrictatime": unix.MS_STRICTATIME,
	}
)

// options are the parsed options of a mount.
type options struct {
	flags          uintptr
	data           []string
	lower          []string // the layers of an overlay
	work           string   // the directory for its work
	uidmap, gidmap string
}

func parseOptions(all []string) options {
	var o options
	for _, s := range all {
		name, value, _ := strings.Cut(s, "=")
		switch {
		case flags[s] != 0:
			o.flags |= flags[s]
		case unset[s] != 0:
			o.flags &^= unset[s]
		case s == "defaults":
		case name == "lowerdir":
			o.lower = strings.Split(value, ":")
		case name == "uidmap":
			o.uidmap = value
		case name == "gidmap":
			o.gidmap = value
		default:
			if name == "workdir" {
				o.work = value
			}
			o.data = append(o.data, s)
		}
	}
	return o
}

// Mount mounts a file system at the target.
func (r *Reaper) Mount(m ttrpc.Mount, target string) error {
	if m.Target != "" {
		return ttrpc.Errorf(ttrpc.Unimplemented, "this shim does not mount below the root file system")
	}
	o := parseOptions(m.Options)
	if o.uidmap != "" {
		undo, err := r.mapLayers(&o)
		if err != nil {
			return fmt.Errorf("mapping the users of layers: %w", err)
		}
		defer undo()
	}
	at := "" // of the layers, unless their names are absolute
	if len(strings.Join(o.lower, ":"))+len(strings.Join(o.data, ",")) > pageSize {
		at = common(o.lower)
		o.lower = move(o.lower, strings.TrimSuffix(at, "/")+"/", "")
	}
	if len(o.lower) > 0 {
		o.data = append(o.data, "lowerdir="+strings.Join(o.lower, ":"))
	}
	if err := within(at, func() error { return mount(m, target, o) }); err != nil {
		return fmt.Errorf("mounting %s at %q: %w", m.Type, target, err)
	}
	if o.flags&unix.MS_BIND != 0 && o.flags&unix.MS_RDONLY != 0 {
		return unix.Mount("", target, "", o.flags|unix.MS_REMOUNT, "")
	}
	return nil
}

// mount also makes the layer of a container volatile, which nobody mounts again after the container has
// ended: otherwise the end of each container would wait until all that programs have written to that
// file system is on disk, such as the images of the other containers.
func mount(m ttrpc.Mount, target string, o options) error {
	data := strings.Join(o.data, ",")
	if m.Type == "overlay" && o.work != "" {
		err := unix.Mount(m.Source, target, m.Type, o.flags, data+",volatile")
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
		// Linux before 5.10, or the layer was mounted by a call that was cut off.
		if err := os.RemoveAll(filepath.Join(o.work, "work/incompat/volatile")); err != nil {
			return err
		}
	}
	return unix.Mount(m.Source, target, m.Type, o.flags, data)
}

// within calls f on a thread whose working directory is dir, if that is not empty.
func within(dir string, f func() error) error {
	if dir == "" {
		return f()
	}
	goruntime.LockOSThread()
	// The thread must not end: the programs that it has started would be killed.
	defer goruntime.UnlockOSThread()
	before, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(before) }()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	return errors.Join(f(), unix.Fchdir(before))
}

// common returns the directory that has all layers.
func common(layers []string) string {
	dir := filepath.Dir(layers[0])
	for _, l := range layers {
		for !strings.HasPrefix(l, dir+"/") && dir != "/" {
			dir = filepath.Dir(dir)
		}
	}
	return dir
}

// move returns the layers as they are below another directory.
func move(layers []string, from, to string) []string {
	moved := slices.Clone(layers)
	for i := range moved {
		moved[i] = to + strings.TrimPrefix(moved[i], from)
	}
	return moved
}

// mapLayers makes the files of an overlay's layers belong to the users of a user namespace.
func (r *Reaper) mapLayers(o *options) (undo func(), err error) {
	if len(o.lower) == 0 {
		return nil, errors.New("the root file system is not an overlay")
	}
	users, err := r.userNamespace(o.uidmap, o.gidmap)
	if err != nil {
		return nil, err
	}
	defer func() { _ = users.Close() }()
	dir := common(o.lower)
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(tree) }()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return nil, err
	}
	at, err := os.MkdirTemp("", "runonce-layers-")
	if err != nil {
		return nil, err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, errors.Join(err, os.Remove(at))
	}
	o.lower = move(o.lower, dir, at)
	return func() {
		// The overlay has the layers; only the name goes.
		_ = unix.Unmount(at, unix.MNT_DETACH)
		_ = os.Remove(at)
	}, nil
}

// userNamespace returns a user namespace with the mappings, each CONTAINER:HOST:SIZE.
func (r *Reaper) userNamespace(uidmap, gidmap string) (*os.File, error) {
	uids, err := mappings(uidmap)
	if err != nil {
		return nil, err
	}
	gids, err := mappings(gidmap)
	if err != nil {
		return nil, err
	}
	// A stopped process, which has not become another program yet.
	pid, err := r.Start([]string{"/proc/self/exe"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: uids, GidMappings: gids, Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}}, func(Exit) {})
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Signal(pid, syscall.SIGKILL) }()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
}

func mappings(text string) ([]syscall.SysProcIDMap, error) {
	var all []syscall.SysProcIDMap
	for s := range strings.SplitSeq(text, ",") {
		var m syscall.SysProcIDMap
		if _, err := fmt.Sscanf(s, "%d:%d:%d", &m.ContainerID, &m.HostID, &m.Size); err != nil {
			return nil, fmt.Errorf("parsing the mapping %q: %w", s, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// Unmount unmounts what is mounted at the path and below it, and removes the directory if that
// leaves it empty.
func Unmount(path string) error {
	// Nearly always one file system is mounted. To read the list of all takes the longer the more
	// pods there are, for containerd as well, which does so if the directory exists.
	if unix.Unmount(path, unix.UMOUNT_NOFOLLOW) == nil && os.Remove(path) == nil {
		return nil
	}
	path, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return err
	}
	slices.Reverse(mounts) // later ones are above earlier ones
	for _, m := range mounts {
		if err := unmount(m.Mountpoint); err != nil {
			return fmt.Errorf("unmounting %q: %w", m.Mountpoint, err)
		}
	}
	_ = os.Remove(path)
	return nil
}

func unmount(path string) error {
	for range 50 {
		err := unix.Unmount(path, 0)
		if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return unix.EBUSY
}
