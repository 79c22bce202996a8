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

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/ocispec/expand"
	"github.com/runonce/runonce/runtime/volume/hostpath"
	"github.com/runonce/runonce/runtime/volume/subpath"
)

// Mounts returns the OCI mounts for the container's volumeMounts, parents before children,
// and the one for /dev/shm unless a volume is mounted there.
// env is the container's final environment, for subPathExpr. Setup must have been called.
func (m *Manager) Mounts(pod *v1.Pod, c *v1.Container, env []string) ([]specs.Mount, error) {
	mounts := make([]specs.Mount, 0, len(c.VolumeMounts)+1)
	for i := range c.VolumeMounts {
		vm := &c.VolumeMounts[i]
		v := volumeNamed(pod, vm.Name)
		if v == nil {
			return nil, failure.FailedMountf("cannot find volume %q to mount into container %q", vm.Name, c.Name)
		}
		at := use{pod: pod, container: c, volume: v, mount: vm, index: i}
		mount, err := m.mountFor(at, env)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	if !slices.ContainsFunc(mounts, func(x specs.Mount) bool { return filepath.Clean(x.Destination) == devShm }) {
		mounts = append(mounts, m.shmMount(pod))
	}
	slices.SortStableFunc(mounts, func(a, b specs.Mount) int { return depth(a.Destination) - depth(b.Destination) })
	return mounts, nil
}

// use is one volumeMount of a container.
type use struct {
	pod       *v1.Pod
	container *v1.Container
	volume    *v1.Volume
	mount     *v1.VolumeMount
	index     int
}

func volumeNamed(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

func depth(p string) int {
	return strings.Count(strings.TrimSuffix(filepath.Clean(p), "/"), "/")
}

func (m *Manager) mountFor(u use, env []string) (specs.Mount, error) {
	sub, err := subPath(u.mount, env)
	if err != nil {
		return specs.Mount{}, err
	}
	from, err := m.source(u.pod, u.volume)
	if err != nil {
		return specs.Mount{}, err
	}
	options, err := m.options(u, from.readOnly)
	if err != nil {
		return specs.Mount{}, err
	}
	source := from.path
	if err := m.share(u, from); err != nil {
		return specs.Mount{}, err
	}
	if sub != "" {
		if source, err = m.bindSubPath(u, source, sub); err != nil {
			return specs.Mount{}, err
		}
	} else if h := from.HostPath; h != nil {
		if err := hostpath.Ensure(h); err != nil {
			return specs.Mount{}, err
		}
	}
	if err := m.checkPropagation(u, source); err != nil {
		return specs.Mount{}, err
	}
	target := u.mount.MountPath
	if !filepath.IsAbs(target) {
		target = "/" + target
	}
	return specs.Mount{Destination: target, Type: "bind", Source: source, Options: options}, nil
}

// options returns the options of the bind mount.
func (m *Manager) options(u use, readOnly bool) ([]string, error) {
	options := []string{"rbind"}
	switch p := u.mount.MountPropagation; {
	case p == nil || *p == v1.MountPropagationNone:
		options = append(options, "rprivate")
	case *p == v1.MountPropagationHostToContainer:
		options = append(options, "rslave")
	case *p == v1.MountPropagationBidirectional:
		options = append(options, "rshared")
	default:
		return nil, failure.FailedMountf("volumeMount %q of container %q: invalid mountPropagation %q", u.mount.Name, u.container.Name, *p)
	}
	options = append(options, u.mount.BindMountOptions...)
	recursive, err := m.recursive(u)
	switch {
	case err != nil:
		return nil, err
	case recursive:
		return append(options, "rro"), nil
	case u.mount.ReadOnly || readOnly:
		return append(options, "ro"), nil
	}
	return append(options, "rw"), nil
}

// share makes an emptyDir a shared mount where mount events are to pass through it and
// the machine's own mounts are private.
func (m *Manager) share(u use, from source) error {
	if p := u.mount.MountPropagation; from.EmptyDir == nil || p == nil || *p == v1.MountPropagationNone {
		return nil
	}
	point, err := m.mounter().Around(from.path)
	if err != nil || point.Shared {
		return err
	}
	if mounted, err := m.mounter().Mounted(from.path); err != nil {
		return err
	} else if !mounted {
		if err := m.mounter().Mount(from.path, from.path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return m.mounter().Mount("", from.path, "", unix.MS_SHARED, "")
}

// checkPropagation refuses what would not work without a word: mount events pass only
// through shared mounts (containerd's ensureShared and ensureSharedOrSlave).
func (m *Manager) checkPropagation(u use, source string) error {
	p := u.mount.MountPropagation
	if p == nil || *p == v1.MountPropagationNone {
		return nil
	}
	point, err := m.mounter().Around(source)
	switch {
	case err != nil:
		return err
	case point.Shared || (point.Slave && *p == v1.MountPropagationHostToContainer):
		return nil
	case *p == v1.MountPropagationHostToContainer:
		return failure.FailedMountf("path %q is mounted on %q but it is not a shared or slave mount", source, point.Target)
	}
	return failure.FailedMountf("path %q is mounted on %q but it is not a shared mount", source, point.Target)
}

// recursive decides whether mounts below the volume become read-only too
// (kubelet resolveRecursiveReadOnly).
func (m *Manager) recursive(u use) (bool, error) {
	mode := u.mount.RecursiveReadOnly
	if mode == nil || *mode == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	private := u.mount.MountPropagation == nil || *u.mount.MountPropagation == v1.MountPropagationNone
	switch {
	case !u.mount.ReadOnly:
		return false, failure.FailedMountf("volume %q requested recursive read-only mode, but it is not read-only", u.mount.Name)
	case !private:
		return false, failure.FailedMountf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q",
			u.mount.Name, *u.mount.MountPropagation)
	case *mode == v1.RecursiveReadOnlyIfPossible:
		return m.canRecursive(u.pod), nil
	case !m.canRecursive(u.pod):
		return false, failure.FailedMountf("volume %q requested recursive read-only mode, but it is not supported by the runtime", u.mount.Name)
	}
	return true, nil
}

func (m *Manager) canRecursive(pod *v1.Pod) bool {
	return m.RecursiveReadOnly != nil && m.RecursiveReadOnly(pod)
}

// subPath returns the path below the volume that is mounted, empty for the volume itself.
func subPath(vm *v1.VolumeMount, env []string) (string, error) {
	if vm.SubPathExpr == "" {
		return vm.SubPath, nil
	}
	lookup, missing := expand.Env(env), ""
	sub := expand.Expand(vm.SubPathExpr, func(name string) (string, bool) {
		value, ok := lookup(name)
		if (!ok || value == "") && missing == "" {
			missing = name
		}
		return value, ok
	})
	if missing != "" {
		return "", failure.FailedMountf("missing value for %q", missing)
	}
	return sub, nil
}

// bindSubPath mounts the sub-path of a volume at a place of its own on the host, and
// returns that. The mount is made from a handle: the path given to an OCI runtime would be
// resolved again, when a container may have put a link in its way.
func (m *Manager) bindSubPath(u use, root, sub string) (string, error) {
	if err := subpath.Check(sub); err != nil {
		return "", failure.FailedMountf("%w", err)
	}
	f, err := openSubPath(u, root, sub)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", subPathFailed(u, err)
	}
	target := m.dir(u.pod, subpathsDir, u.volume.Name, u.container.Name, strconv.Itoa(u.index))
	if err := m.prepareTarget(target, info.IsDir()); err != nil {
		return "", fmt.Errorf("preparing the place of volumeMount %q of container %q: %w", u.mount.Name, u.container.Name, err)
	}
	if err := m.bind(f, target, u.mount.MountPropagation); err != nil {
		return "", fmt.Errorf("binding volumeMount %q of container %q: %w", u.mount.Name, u.container.Name, err)
	}
	return target, nil
}

// openSubPath opens the path in the volume at root. What is not in an image will not come
// to be there, and is no secret of the host's.
func openSubPath(u use, root, sub string) (*os.File, error) {
	if u.volume.Image == nil {
		f, err := subpath.Open(root, sub)
		if err != nil {
			return nil, subPathFailed(u, err)
		}
		return f, nil
	}
	f, err := subpath.OpenDir(root, sub)
	if err != nil {
		err = fmt.Errorf("ImageVolumeMountFailed: failed to ensure image subpath %q of volume %q: %w", sub, u.mount.Name, err)
		return nil, failure.CreateErrorf("%w", err)
	}
	return f, nil
}

// bind mounts what f refers to at target. The new mount would share its events with the
// one that it is a part of, so that to unmount it could unmount the host's: only a
// bidirectional one stays so.
func (m *Manager) bind(f *os.File, target string, p *v1.MountPropagationMode) error {
	source := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	if err := m.mounter().Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	kind := uintptr(unix.MS_PRIVATE)
	if p != nil && *p == v1.MountPropagationBidirectional {
		return nil
	}
	if p != nil && *p == v1.MountPropagationHostToContainer {
		kind = unix.MS_SLAVE
	}
	return m.mounter().Mount("", target, "", kind, "")
}

// prepareTarget makes an empty directory or file to mount on, in place of one that an
// earlier instance of the container used.
func (m *Manager) prepareTarget(target string, dir bool) error {
	if err := m.mounter().Unmount(target); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), podDirMode); err != nil {
		return err
	}
	if dir {
		return os.Mkdir(target, podDirMode)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// subPathFailed says, as vaguely as the kubelet does, that a sub-path could not be used: a
// container must not learn from it what is on the host. The cause can be unwrapped.
func subPathFailed(u use, err error) error {
	message := fmt.Sprintf("failed to prepare subPath for volumeMount %q of container %q", u.mount.Name, u.container.Name)
	return &failure.Error{
		Why: failure.ReasonConfigError, Final: errors.Is(err, subpath.ErrEscape), Err: failure.WithMessage(message, err),
	}
}
