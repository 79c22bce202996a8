package volume

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/volume/emptydir"
	"github.com/runonce/runonce/runtime/volume/fsgroup"
)

// emptyDir makes an emptyDir volume: a directory, or a tmpfs or hugetlbfs mounted on one.
func (m *Manager) emptyDir(pod *v1.Pod, v *v1.Volume) error {
	dir, mode := m.path(pod, v), emptydir.Mode(v.EmptyDir.Mode)
	if err := makeDir(dir, mode); err != nil {
		return err
	}
	var mounted filesystem
	switch medium := v.EmptyDir.Medium; {
	case medium == v1.StorageMediumDefault:
		return fsgroup.Own(pod, dir, false, false)
	case medium == v1.StorageMediumMemory:
		mounted = filesystem{kind: "tmpfs", options: emptydir.MemoryOptions(pod, v.EmptyDir, m.Allocatable)}
	case strings.HasPrefix(string(medium), string(v1.StorageMediumHugePages)):
		size, err := emptydir.HugePageSize(pod, medium)
		if err != nil {
			return err
		}
		mounted = filesystem{kind: "hugetlbfs", options: size}
	default:
		return failure.FailedMountf("unknown medium %q", medium)
	}
	if err := m.mountOnce(dir, mounted); err != nil {
		return err
	}
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	return fsgroup.Own(pod, dir, false, false)
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
