package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/ocispec"
)

// errEscape says that a sub-path leads out of its volume.
var errEscape = errors.New("the path leads out of the volume")

// subPath returns the path below the volume that is mounted, empty for the volume itself.
func subPath(vm *v1.VolumeMount, env []string) (string, error) {
	if vm.SubPathExpr == "" {
		return vm.SubPath, nil
	}
	lookup, missing := ocispec.LookupEnv(env), ""
	sub := ocispec.Expand(vm.SubPathExpr, func(name string) (string, bool) {
		value, ok := lookup(name)
		if value == "" && missing == "" {
			missing = name
		}
		return value, ok
	})
	if missing != "" {
		return "", failure.FailedMountf("missing value for %q", missing)
	}
	return sub, nil
}

// bindSubPath mounts the sub-path of the volume at root on a path of its own on the host,
// and returns that. The mount is made from a handle: an OCI runtime would resolve a path
// again, after a container may have replaced a part of it by a link.
func (m *Manager) bindSubPath(vm volumeMount, root, sub string) (string, error) {
	if filepath.IsAbs(sub) {
		return "", failure.FailedMountf("subPath %q must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return "", failure.FailedMountf("subPath %q must not contain '..'", sub)
	}
	f, err := openSubPath(root, sub, vm.volume.Image == nil)
	if err != nil {
		return "", subPathError(vm, root, sub, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil && vm.volume.Image != nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: sub, Err: unix.ENOTDIR}
	}
	if err != nil {
		return "", subPathError(vm, root, sub, err)
	}
	target := m.dir(vm.pod, subpathsDir, vm.volume.Name, vm.container.Name, strconv.Itoa(vm.index))
	if err := m.prepareTarget(target, info.IsDir()); err != nil {
		return "", vm.failed("making the mount point", err)
	}
	if err := m.bind(f, target, vm.propagation()); err != nil {
		return "", vm.failed("binding the path", err)
	}
	return target, nil
}

// subPathError has the kubelet's words, and the cause, which the kubelet hides: it resolves paths that
// a container has made outside of the volume as well, and they could tell what is on the host. An image
// does not change.
func subPathError(vm volumeMount, root, sub string, err error) error {
	if vm.volume.Image != nil {
		return failure.CreateErrorf("ImageVolumeMountFailed: failed to ensure image subpath %q of volume %q: %w", sub, vm.Name, err)
	}
	final := errors.Is(err, errEscape)
	var at *fs.PathError
	if errors.As(err, &at) && at.Path == root && errors.Is(err, fs.ErrNotExist) {
		err = failure.Limited(hostPathRetries, fmt.Errorf("%w: waiting for somebody to make it, as hostPath type DirectoryOrCreate would", err))
	}
	err = fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", vm.Name, vm.container.Name, err)
	return &failure.Error{Why: failure.ReasonConfigError, Final: final, Err: err}
}

// bind mounts the file or directory of the handle at target. Such a mount is in the peer
// group of the one that it is a part of, and unmounting it could unmount the host's, so only
// a bidirectional one stays there.
func (m *Manager) bind(f *os.File, target string, p v1.MountPropagationMode) error {
	source := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	err := m.Mounter.Mount(source, target, "", unix.MS_BIND, "")
	if flag := propagations[p].flag; err == nil && flag != 0 {
		err = m.Mounter.Mount("", target, "", flag, "")
	}
	return err
}

// openSubPath returns a handle (O_PATH) of sub, a relative path in the directory root.
// Missing directories can be created, with the mode of root. Links are followed as long as
// they stay in the volume; one that leaves it, also an absolute one, is errEscape. The handle
// keeps its target when the path changes.
func openSubPath(root, sub string, create bool) (*os.File, error) {
	base, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer func() { _ = unix.Close(base) }()
	fd, err := openAt(base, sub)
	if create && errors.Is(err, unix.ENOENT) {
		if err = makeDirs(root, sub); err == nil {
			fd, err = openAt(base, sub)
		}
	}
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) {
		err = errEscape
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(root, sub), Err: err}
	}
	return os.NewFile(uintptr(fd), sub), nil
}

func openAt(base int, path string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		// EAGAIN: a rename raced with the walk; the kernel asks to try again.
		fd, err := unix.Openat2(base, path, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// makeDirs creates the missing directories of path below root, with the mode of root. Links
// cannot lead out of it.
func makeDirs(root, path string) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	info, err := dir.Stat(".")
	if err != nil {
		return err
	}
	made := ""
	for name := range strings.SplitSeq(filepath.Clean(path), "/") {
		made = filepath.Join(made, name)
		err := dir.Mkdir(made, info.Mode().Perm())
		if err == nil {
			err = dir.Chmod(made, info.Mode()) // the umask may have removed permissions
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
