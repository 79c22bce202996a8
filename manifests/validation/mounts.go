package validation

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// mountedDirs are where every container has file systems of the kernel.
var mountedDirs = []string{"/proc", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys", "/sys/fs/cgroup"}

// checkMounts finds mounts that no OCI runtime can make, whatever is in the image, and a working
// directory that it does not take.
func (f *finder) checkMounts(at string, c *v1.Container, volumes []v1.Volume) {
	if c.WorkingDir != "" && !path.IsAbs(c.WorkingDir) {
		f.fail(at+".workingDir", "must be an absolute path", "begin it with /")
	}
	targets := make([]string, 0, len(c.VolumeMounts))
	for _, m := range c.VolumeMounts {
		targets = append(targets, path.Clean("/"+m.MountPath))
	}
	for i, m := range c.VolumeMounts {
		if targets[i] == "/" && m.MountPath != "" && isFresh(volumes, m.Name) && !slices.Contains(targets, "/proc") {
			f.fail(fmt.Sprintf("%s.volumeMounts[%d].mountPath", at, i), fmt.Sprintf("volume %q cannot be the root of a container: it has nothing of the image, and no /proc", m.Name), "")
		}
	}
	for _, file := range podspec.NodeFiles(c) {
		file := path.Clean("/" + file.Path)
		if slices.Contains(targets, file) {
			continue // the volume is mounted instead
		}
		for i, target := range targets {
			if isBelow(target, file) && file != "/" {
				f.fail(fmt.Sprintf("%s.volumeMounts[%d].mountPath", at, i), fmt.Sprintf("nothing can be mounted in %s, which is a file", file), "")
			}
		}
	}
	f.checkMessagePath(at+".terminationMessagePath", path.Clean("/"+c.TerminationMessagePath), c)
}

// checkMessagePath refuses a file where there is a directory in every container.
func (f *finder) checkMessagePath(field, file string, c *v1.Container) {
	if c.TerminationMessagePath == "" {
		return
	}
	dirs := slices.Concat([]string{"/", "/etc"}, mountedDirs)
	if slices.Contains(dirs, file) || slices.ContainsFunc(mountedDirs, func(dir string) bool { return isBelow(dir, file) }) {
		f.fail(field, fmt.Sprintf("%s is a directory in every container, and the termination message a file", file), "")
	}
}

// isBelow says whether a path is in a directory.
func isBelow(name, dir string) bool {
	return name != dir && strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// isFresh says whether a volume has only what its pod has, or nothing.
func isFresh(volumes []v1.Volume, name string) bool {
	return slices.ContainsFunc(volumes, func(v v1.Volume) bool {
		return v.Name == name && (v.EmptyDir != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil)
	})
}
