package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// makeNestedMountpoints makes a directory in dir, which holds the volume, for each mount
// inside a mount of the volume: the volume is read-only, so the OCI runtime could not make
// them. Existing files and directories are kept (pkg/volume/util.MakeNestedMountpoints).
func makeNestedMountpoints(dir string, pod *v1.Pod, volume string) error {
	for _, point := range nestedMountpoints(pod, volume) {
		path := filepath.Join(dir, point)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("making a mount point inside the volume: %w", err)
		}
	}
	return nil
}

// nestedMountpoints returns the paths in the volume at which other volumes of the same
// container are mounted, without those inside another one.
func nestedMountpoints(pod *v1.Pod, volume string) []string {
	var all []string
	for _, c := range podspec.Containers(pod) {
		var targets []string
		for _, m := range c.VolumeMounts {
			targets = append(targets, mountTarget(&m))
		}
		slices.Sort(targets)
		for _, m := range c.VolumeMounts {
			if m.Name == volume && m.SubPathExpr == "" {
				all = append(all, nestedIn(&m, targets)...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// nestedIn returns the paths, relative to the volume, of the sorted targets inside the mount.
func nestedIn(m *v1.VolumeMount, targets []string) []string {
	var paths []string
	outer := strings.TrimSuffix(mountTarget(m), "/") + "/"
	last := ""
	for _, target := range targets {
		inner, ok := strings.CutPrefix(target, outer)
		if !ok || inner == "" || last != "" && strings.HasPrefix(target, last) {
			continue
		}
		last = target + "/"
		if path := filepath.Join(m.SubPath, inner); filepath.IsLocal(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// mountTarget returns the absolute path of a mount in the container.
func mountTarget(m *v1.VolumeMount) string { return filepath.Clean("/" + m.MountPath) }
