package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// Mounts returns the OCI mounts for the container's volumeMounts, and the one for /dev/shm
// unless a volume is mounted there. env is the container's final environment, for
// subPathExpr. Setup must have been called.
func (m *Manager) Mounts(pod *v1.Pod, c *v1.Container, env []string) ([]specs.Mount, error) {
	mounts := make([]specs.Mount, 0, len(c.VolumeMounts)+1)
	for i := range c.VolumeMounts {
		vm := &c.VolumeMounts[i]
		v := volumeNamed(pod, vm.Name)
		if v == nil {
			return nil, failure.FailedMountf("cannot find volume %q to mount into container %q", vm.Name, c.Name)
		}
		mount, err := m.mount(volumeMount{VolumeMount: vm, pod: pod, container: c, volume: v, index: i}, env)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	if !slices.ContainsFunc(mounts, func(x specs.Mount) bool { return x.Destination == devShm }) {
		mounts = append(mounts, m.shmMount(pod))
	}
	return mounts, nil
}

// volumeMount is a volumeMount of a container.
type volumeMount struct {
	*v1.VolumeMount
	pod       *v1.Pod
	container *v1.Container
	volume    *v1.Volume
	index     int
}

// propagations are the option of a bind mount for each propagation, and the flag that gives it to
// a mount that it is made from: with 0 that stays in the peer group of its own source.
var propagations = map[v1.MountPropagationMode]struct {
	option string
	flag   uintptr
}{
	v1.MountPropagationNone:            {"rprivate", unix.MS_PRIVATE},
	v1.MountPropagationHostToContainer: {"rslave", unix.MS_SLAVE},
	v1.MountPropagationBidirectional:   {"rshared", 0},
}

// propagation returns the mount's propagation, None when it sets none.
func (vm volumeMount) propagation() v1.MountPropagationMode {
	if vm.MountPropagation == nil {
		return v1.MountPropagationNone
	}
	return *vm.MountPropagation
}

// failed says what of the volumeMount could not be done, nil if err is.
func (vm volumeMount) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s of volumeMount %q of container %q: %w", what, vm.Name, vm.container.Name, err)
}

func volumeNamed(pod *v1.Pod, name string) *v1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

func (m *Manager) mount(vm volumeMount, env []string) (specs.Mount, error) {
	sub, err := subPath(vm.VolumeMount, env)
	if err != nil {
		return specs.Mount{}, err
	}
	from, err := m.source(vm.pod, vm.volume)
	if err != nil {
		return specs.Mount{}, err
	}
	options, err := m.mountOptions(vm, from.readOnly)
	if err != nil {
		return specs.Mount{}, err
	}
	if err := vm.failed("sharing the mounts", m.makeShared(vm, from)); err != nil {
		return specs.Mount{}, err
	}
	path := from.path
	if sub != "" {
		path, err = m.bindSubPath(vm, path, sub)
	} else if from.HostPath != nil {
		err = vm.failed("making the directory", createDirIfAbsent(path))
	}
	if err != nil {
		return specs.Mount{}, err
	}
	if err := m.checkPropagation(vm, path); err != nil {
		return specs.Mount{}, err
	}
	return specs.Mount{Destination: mountTarget(vm.VolumeMount), Type: "bind", Source: path, Options: options}, nil
}

// mountOptions returns the options of the bind mount.
func (m *Manager) mountOptions(vm volumeMount, readOnly bool) ([]string, error) {
	p, ok := propagations[vm.propagation()]
	if !ok {
		return nil, failure.FailedMountf("volumeMount %q of container %q: invalid mountPropagation %q", vm.Name, vm.container.Name, vm.propagation())
	}
	options := append([]string{"rbind", p.option}, vm.BindMountOptions...)
	recursive, err := m.recursiveReadOnly(vm)
	switch {
	case err != nil:
		return nil, err
	case recursive:
		return append(options, "rro"), nil
	case vm.ReadOnly || readOnly:
		return append(options, "ro"), nil
	}
	return append(options, "rw"), nil
}

// makeShared makes an emptyDir a shared mount where the propagation needs one and the
// host's mounts are private.
func (m *Manager) makeShared(vm volumeMount, from source) error {
	if from.EmptyDir == nil || vm.propagation() == v1.MountPropagationNone {
		return nil
	}
	point, err := m.Mounter.Lookup(from.path)
	if err != nil || isShared(point) {
		return err
	}
	mounted, err := m.Mounter.Mounted(from.path)
	if err == nil && !mounted {
		err = m.Mounter.Mount(from.path, from.path, "", unix.MS_BIND, "")
	}
	if err != nil {
		return err
	}
	return m.Mounter.Mount("", from.path, "", unix.MS_SHARED, "")
}

// checkPropagation refuses a propagation that would silently not work: mount events pass
// only through shared mounts (containerd's ensureShared and ensureSharedOrSlave).
func (m *Manager) checkPropagation(vm volumeMount, path string) error {
	p := vm.propagation()
	if p == v1.MountPropagationNone {
		return nil
	}
	point, err := m.Mounter.Lookup(path)
	switch {
	case err != nil:
		return vm.failed("finding the mount", err)
	case isShared(point) || (isSlave(point) && p == v1.MountPropagationHostToContainer):
		return nil
	case p == v1.MountPropagationHostToContainer:
		return failure.FailedMountf("path %q is mounted on %q but it is not a shared or slave mount", path, point.Mountpoint)
	}
	return failure.FailedMountf("path %q is mounted on %q but it is not a shared mount", path, point.Mountpoint)
}

// recursiveReadOnly reports whether the mounts inside the volume become read-only too
// (kubelet resolveRecursiveReadOnly).
func (m *Manager) recursiveReadOnly(vm volumeMount) (bool, error) {
	mode := vm.RecursiveReadOnly
	if mode == nil || *mode == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !vm.ReadOnly {
		return false, failure.FailedMountf("volume %q requested recursive read-only mode, but it is not read-only", vm.Name)
	}
	if p := vm.propagation(); p != v1.MountPropagationNone {
		return false, failure.FailedMountf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", vm.Name, p)
	}
	supported := m.RecursiveReadOnly != nil && m.RecursiveReadOnly(vm.pod)
	if !supported && *mode != v1.RecursiveReadOnlyIfPossible {
		return false, failure.FailedMountf("volume %q requested recursive read-only mode, but it is not supported by the runtime", vm.Name)
	}
	return supported, nil
}

// prepareTarget makes an empty directory or file to mount on. It replaces the one of an
// earlier instance of the container.
func (m *Manager) prepareTarget(target string, dir bool) error {
	if err := m.Mounter.Unmount(target); err != nil {
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
