package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/ocispec"
)

// volumeMode lets every user of the pod write (pkg/volume/emptydir).
const volumeMode = 0o777

// emptyDir makes an emptyDir volume: a directory, or a tmpfs or hugetlbfs mounted on one.
func (m *Manager) emptyDir(pod *v1.Pod, v *v1.Volume) error {
	dir, mode := m.path(pod, v), emptyDirMode(v.EmptyDir.Mode)
	if err := makeDir(dir, mode); err != nil {
		return err
	}
	var f filesystem
	switch medium := v.EmptyDir.Medium; {
	case medium == v1.StorageMediumDefault:
		return setVolumeOwnership(pod, dir, false, false)
	case medium == v1.StorageMediumMemory:
		f = filesystem{kind: "tmpfs", options: m.memoryOptions(pod, v.EmptyDir.SizeLimit)}
	case strings.HasPrefix(string(medium), string(v1.StorageMediumHugePages)):
		size, err := hugePageSize(pod, medium)
		if err != nil {
			return err
		}
		f = filesystem{kind: "hugetlbfs", options: "pagesize=" + strings.TrimSuffix(size, "i")}
	default:
		return failure.FailedMountf("unknown medium %q", medium)
	}
	if err := m.mountOnce(dir, f); err != nil {
		return err
	}
	if f.kind == "tmpfs" && v.EmptyDir.Mode == nil {
		mode |= fs.ModeSticky // as the kubelet leaves it
	}
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	return setVolumeOwnership(pod, dir, false, false)
}

// emptyDirMode converts the permission bits of the API, of which 01000 is the sticky bit.
func emptyDirMode(bits *int32) fs.FileMode {
	if bits == nil {
		return volumeMode
	}
	mode := fs.FileMode(*bits) & fs.ModePerm
	if *bits&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// memoryOptions limits a tmpfs to the smallest of its sizeLimit, the memory limit of the pod's
// cgroup and the node's memory.
func (m *Manager) memoryOptions(pod *v1.Pod, sizeLimit *resource.Quantity) string {
	sizes := []int64{m.Allocatable.Memory().Value(), ocispec.PodLimits(pod).Memory}
	if sizeLimit != nil {
		sizes = append(sizes, sizeLimit.Value())
	}
	sizes = slices.DeleteFunc(sizes, func(n int64) bool { return n <= 0 })
	if len(sizes) == 0 {
		return ""
	}
	return fmt.Sprintf("size=%d", slices.Min(sizes))
}

// hugePageSize returns the page size that the medium names, else the one that the pod's
// containers request.
func hugePageSize(pod *v1.Pod, medium v1.StorageMedium) (string, error) {
	if size, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		return size, nil
	}
	var sizes []string
	for name := range podresource.PodRequests(pod, podresource.PodResourcesOptions{}) {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			sizes = append(sizes, size)
		}
	}
	switch len(sizes) {
	case 0:
		return "", failure.FailedMountf("hugePages storage requested, but there is no resource request for huge pages")
	case 1:
		return sizes[0], nil
	}
	return "", failure.FailedMountf("medium HugePages: the containers request several page sizes, so the medium must name one")
}

// filesystem is a new file system to mount, without set-user-ID programs and devices.
type filesystem struct {
	kind    string
	options string
	flags   uintptr // in addition
}

// mountOnce mounts a new file system at dir unless one is mounted already.
func (m *Manager) mountOnce(dir string, f filesystem) error {
	mounted, err := m.Mounter.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	flags := unix.MS_NOSUID | unix.MS_NODEV | f.flags
	err = unix.EINVAL
	if f.kind == "tmpfs" {
		// Memory should not be swapped to a disk. Linux before 6.4 does not know the option.
		err = m.Mounter.Mount(f.kind, dir, f.kind, flags, strings.TrimPrefix(f.options+",noswap", ","))
	}
	if errors.Is(err, unix.EINVAL) {
		err = m.Mounter.Mount(f.kind, dir, f.kind, flags, f.options)
	}
	if err != nil {
		return fmt.Errorf("mounting %s: %w", f.kind, err)
	}
	return nil
}

// devShm is the directory of POSIX shared memory. It belongs to the IPC namespace, which the
// containers of a pod share.
const devShm = "/dev/shm"

// shm mounts the pod's shared memory, as large as that of CRI runtimes. Pods in the host's
// IPC namespace use the host's.
func (m *Manager) shm(pod *v1.Pod) error {
	if pod.Spec.HostIPC {
		return nil
	}
	dir := m.dir(pod, shmDir)
	if err := os.MkdirAll(dir, podDirMode); err != nil {
		return err
	}
	return m.mountOnce(dir, filesystem{kind: "tmpfs", options: "mode=1777,size=65536k", flags: unix.MS_NOEXEC})
}

func (m *Manager) shmMount(pod *v1.Pod) specs.Mount {
	source := m.dir(pod, shmDir)
	if pod.Spec.HostIPC {
		source = devShm
	}
	return specs.Mount{Destination: devShm, Type: "bind", Source: source, Options: []string{"rbind", "rprivate", "rw"}}
}
