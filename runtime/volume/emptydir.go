package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// emptyDirMode lets every user of the pod write (pkg/volume/emptydir).
const emptyDirMode = 0o777

// emptyDir makes an emptyDir volume: a directory, or a tmpfs or hugetlbfs mounted on one.
func (m *Manager) emptyDir(pod *v1.Pod, v *v1.Volume) error {
	dir, mode := m.path(pod, v), dirMode(v.EmptyDir.Mode)
	if err := makeDir(dir, mode); err != nil {
		return err
	}
	var mounted filesystem
	switch medium := v.EmptyDir.Medium; {
	case medium == v1.StorageMediumDefault:
		return m.own(pod, v, dir)
	case medium == v1.StorageMediumMemory:
		mounted = filesystem{kind: "tmpfs", options: m.memoryOptions(pod, v.EmptyDir)}
	case strings.HasPrefix(string(medium), string(v1.StorageMediumHugePages)):
		size, err := hugePageSize(pod, medium)
		if err != nil {
			return err
		}
		mounted = filesystem{kind: "hugetlbfs", options: size}
	default:
		return refusef("unknown medium %q", medium)
	}
	if err := m.mountOnce(dir, mounted); err != nil {
		return err
	}
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	return m.own(pod, v, dir)
}

// dirMode translates the permission bits of the API, of which 01000 is the sticky bit.
func dirMode(bits *int32) fs.FileMode {
	if bits == nil {
		return emptyDirMode
	}
	mode := fs.FileMode(*bits) & fs.ModePerm
	if *bits&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// filesystem is one to be mounted, without set-uid programs and devices.
type filesystem struct {
	kind    string
	options string
	flags   uintptr // besides those
}

// mountOnce mounts a new file system at dir unless one is there already.
func (m *Manager) mountOnce(dir string, f filesystem) error {
	mounted, err := m.mounter().Mounted(dir)
	if err != nil || mounted {
		return err
	}
	flags := unix.MS_NOSUID | unix.MS_NODEV | f.flags
	err = unix.EINVAL
	if f.kind == "tmpfs" {
		// What is kept in memory should not come to a disk by swapping. Linux before 6.4
		// does not know the option.
		err = m.mounter().Mount(f.kind, dir, f.kind, flags, strings.TrimPrefix(f.options+",noswap", ","))
	}
	if errors.Is(err, unix.EINVAL) {
		err = m.mounter().Mount(f.kind, dir, f.kind, flags, f.options)
	}
	if err != nil {
		return fmt.Errorf("mounting %s: %w", f.kind, err)
	}
	return nil
}

// memoryOptions bounds a tmpfs by the smallest of sizeLimit, the pod's memory limit and
// the node's memory.
func (m *Manager) memoryOptions(pod *v1.Pod, s *v1.EmptyDirVolumeSource) string {
	limits := podresource.PodLimits(pod, podresource.PodResourcesOptions{})
	var sizes []int64
	for _, q := range []*resource.Quantity{s.SizeLimit, m.Allocatable.Memory(), memoryLimit(pod, limits)} {
		if q != nil && q.Sign() > 0 {
			sizes = append(sizes, q.Value())
		}
	}
	if len(sizes) == 0 {
		return ""
	}
	return fmt.Sprintf("size=%d", slices.Min(sizes))
}

// memoryLimit returns the pod's memory limit, nil unless each of its containers, or the
// pod as a whole, has one.
func memoryLimit(pod *v1.Pod, limits v1.ResourceList) *resource.Quantity {
	if !podresource.IsPodLevelLimitsSet(pod) {
		for i := range pod.Spec.Containers {
			if pod.Spec.Containers[i].Resources.Limits.Memory().IsZero() {
				return nil
			}
		}
	}
	return limits.Memory()
}

// hugePageSize returns the mount option for the page size that the medium names, else for
// the one that the pod's containers ask for.
func hugePageSize(pod *v1.Pod, medium v1.StorageMedium) (string, error) {
	if size, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		return "pagesize=" + strings.TrimSuffix(size, "i"), nil
	}
	var sizes []string
	for name := range podresource.PodRequests(pod, podresource.PodResourcesOptions{}) {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			sizes = append(sizes, size)
		}
	}
	switch len(sizes) {
	case 0:
		return "", refusef("hugePages storage requested, but there is no resource request for huge pages")
	case 1:
		return "pagesize=" + strings.TrimSuffix(sizes[0], "i"), nil
	}
	return "", refusef("medium HugePages: the containers ask for several page sizes, so that the medium must name one")
}
