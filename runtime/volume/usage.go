package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// Usage returns the disk usage of the pod's emptyDir volumes in bytes, by name.
func (m *Manager) Usage(ctx context.Context, pod *v1.Pod) (map[string]int64, error) {
	used := map[string]int64{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumDefault {
			continue
		}
		n, err := diskUsage(ctx, m.path(pod, v))
		if err != nil {
			return nil, fmt.Errorf("measuring volume %q: %w", v.Name, err)
		}
		used[v.Name] = n
	}
	return used, nil
}

// InMemory returns what the pod's emptyDir volumes in memory hold in bytes, by name.
func (m *Manager) InMemory(pod *v1.Pod) map[string]int64 {
	held := map[string]int64{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		var fs syscall.Statfs_t
		if v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumMemory && syscall.Statfs(m.path(pod, v), &fs) == nil {
			held[v.Name] = int64(fs.Blocks-fs.Bfree) * fs.Bsize
		}
	}
	return held
}

// blockSize is the unit of st_blocks, whatever the block size of the file system.
const blockSize = 512

// diskUsage returns the disk usage of the directory in bytes, as du does: hard links count
// once, and what is mounted below does not. Containers may write there at the same time:
// links cannot lead out of the directory, and what changes during the walk is not counted.
// An absent directory uses nothing.
func diskUsage(ctx context.Context, dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	c := counter{linked: map[uint64]bool{}}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		switch {
		case err == nil:
			return c.add(path, info)
		case path == ".":
			return err
		}
		return nil // it has changed since
	})
	return c.bytes, err
}

// counter adds up the files on the device of the first one.
type counter struct {
	bytes  int64
	device uint64
	linked map[uint64]bool // inodes with several names that were counted
}

func (c *counter) add(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return nil
	case path == ".":
		c.device = st.Dev
	case st.Dev != c.device && info.IsDir():
		return fs.SkipDir
	case st.Dev != c.device || c.linked[st.Ino]:
		return nil
	}
	if !info.IsDir() && st.Nlink > 1 {
		c.linked[st.Ino] = true
	}
	c.bytes += st.Blocks * blockSize
	return nil
}
