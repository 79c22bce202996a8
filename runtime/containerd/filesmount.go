package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/sys/mountinfo"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
)

// ended is a container whose process has ended, with its mounts.
type ended struct {
	dir    string // on which its root file system is mounted; it stays empty for others
	spec   *specs.Spec
	rootfs []mount.Mount
	write  bool
}

// mounted returns handles of the root directory and of the mount namespace in which it is mounted. Nobody else sees
// these mounts, and they are gone with the handles, also if this process is killed.
func (c ended) mounted() (root, namespace *os.File, err error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	process.Apart(func() {
		defer close(done)
		if root, namespace, err = c.mount(); err != nil {
			err = fmt.Errorf("mounting its root file system: %w", err)
		}
	})
	<-done
	return root, namespace, err
}

// mount leaves the mount namespace of the process, and mounts.
func (c ended) mount() (root, namespace *os.File, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return nil, nil, err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, nil, err
	}
	if err := c.mountRoot(); err != nil {
		return nil, nil, err
	}
	if root, err = os.OpenFile(c.dir, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = root.Close()
		}
	}()
	for _, m := range c.spec.Mounts {
		if err := bindInside(root, m); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.Destination, err)
		}
	}
	if !c.write {
		// Nothing is written: this only keeps the times of last access as they are.
		_ = unix.MountSetattr(int(root.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	namespace, err = os.Open("/proc/thread-self/ns/mnt")
	return root, namespace, err
}

// mountRoot mounts the root file system.
func (c ended) mountRoot() error {
	if len(c.rootfs) != 1 {
		return fmt.Errorf("it has %d mounts", len(c.rootfs))
	}
	m := c.rootfs[0]
	var err error
	switch {
	case m.Type == "overlay":
		err = c.mountOverlay(m.Options)
	case slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind"):
		err = unix.Mount(m.Source, c.dir, "", unix.MS_BIND|unix.MS_REC, "")
	default:
		err = fmt.Errorf("its file system is of the type %q", m.Type)
	}
	if err == nil && c.spec.Root != nil && c.spec.Root.Readonly {
		err = unix.Mount("", c.dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	return err
}

// mountOverlay mounts an overlay, without its own layer being written to if nothing is to be written. The users of an
// image's layers are not mapped.
func (c ended) mountOverlay(options []string) error {
	o := layersOf(options)
	if mounted, err := o.findMounted(); err != nil {
		return err
	} else if mounted != "" { // its task still exists
		return unix.Mount(mounted, c.dir, "", unix.MS_BIND, "")
	}
	lower, data := o.lower, o.others
	if c.write {
		// The shim has mounted it so that nobody can mount it again before the machine is started again: then
		// some of what was written would be missing. But it has been unmounted.
		if err := os.RemoveAll(filepath.Join(o.work, "work/incompat/volatile")); err != nil {
			return err
		}
		data = append(data, "upperdir="+o.upper, "workdir="+o.work)
	} else if o.upper != "" {
		lower = append([]string{o.upper}, lower...)
	}
	// All options must fit into a page: the names of layers are made shorter.
	dir := commonDir(lower)
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	for i := range lower {
		lower[i] = strings.TrimPrefix(lower[i], dir+"/")
	}
	data = append(data, "lowerdir="+strings.Join(lower, ":"))
	return unix.Mount("overlay", c.dir, "overlay", 0, strings.Join(data, ","))
}

// layers are the options of an overlay.
type layers struct {
	lower       []string
	upper, work string
	others      []string
}

func layersOf(options []string) layers {
	var o layers
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "lowerdir":
			o.lower = strings.Split(value, ":")
		case "upperdir":
			o.upper = value
		case "workdir":
			o.work = value
		case "uidmap", "gidmap", "volatile", "ro", "rw":
		default:
			o.others = append(o.others, option)
		}
	}
	return o
}

// findMounted returns where an overlay with the same upper layer is mounted, empty if it is not.
func (o layers) findMounted() (string, error) {
	at := ""
	_, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		if o.isMountedAt(i) {
			at = i.Mountpoint
		}
		return true, at != ""
	})
	return at, err
}

// isMountedAt reports whether a mount is an overlay with the same upper layer.
func (o layers) isMountedAt(i *mountinfo.Info) bool {
	return i.FSType == "overlay" && o.upper != "" && slices.Contains(strings.Split(escapes.Replace(i.VFSOptions), ","), "upperdir="+o.upper)
}

// escapes are those of proc_pid_mountinfo(5).
var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// commonDir returns the directory that has all the paths.
func commonDir(paths []string) string {
	dir := filepath.Dir(paths[0])
	for _, p := range paths {
		for !strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
			dir = filepath.Dir(dir)
		}
	}
	return dir
}

// bindInside makes a bind mount of a container below its root directory. What is not there any more is left out, and so
// are the file systems of the kernel and those in memory that ended with the container.
func bindInside(root *os.File, m specs.Mount) error {
	if m.Type != "bind" && !slices.Contains(m.Options, "bind") && !slices.Contains(m.Options, "rbind") {
		return nil
	}
	source, err := os.OpenFile(m.Source, unix.O_PATH, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := openInside(root, m.Destination)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil // its program has removed it, or only a runtime knows it
	}
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	if err := unix.Mount(descriptor(source), descriptor(target), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if !slices.Contains(m.Options, "ro") && !slices.Contains(m.Options, "rro") {
		return nil
	}
	covering, err := openInside(root, m.Destination)
	if err != nil {
		return err
	}
	defer func() { _ = covering.Close() }()
	return unix.Mount("", descriptor(covering), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}

// openInside returns a handle of a path in a container. Links do not lead out of it.
func openInside(root *os.File, name string) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(int(root.Fd()), strings.TrimLeft(name, "/"), &how)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
	}
}

// descriptor is a path of an open file. It is that of the thread, in its own mount namespace.
func descriptor(f *os.File) string { return "/proc/thread-self/fd/" + strconv.Itoa(int(f.Fd())) }
