// Package nested makes the places where one volume of a pod is mounted inside another that
// nobody can write to, and on which the OCI runtime could not make them.
package nested

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Make makes in dir, which holds the volume, a directory for each mount that lies inside a
// mount of the volume. What is there stays (pkg/volume/util.MakeNestedMountpoints).
func Make(dir string, pod *v1.Pod, volume string) error {
	for _, point := range points(pod, volume) {
		path := filepath.Join(dir, point)
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			return fmt.Errorf("making the place of a mount inside the volume: %w", err)
		}
	}
	return nil
}

// points returns where in the volume other mounts of the same container lie, but for
// those that lie in one of these.
func points(pod *v1.Pod, volume string) []string {
	var all []string
	for _, c := range podspec.Containers(pod) {
		all = slices.Concat(all, pointsOf(c.VolumeMounts, volume))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func pointsOf(mounts []v1.VolumeMount, volume string) []string {
	targets := make([]string, 0, len(mounts))
	for _, m := range mounts {
		targets = append(targets, target(m))
	}
	slices.Sort(targets)
	var all []string
	for _, m := range mounts {
		if m.Name != volume || m.SubPathExpr != "" {
			continue
		}
		outer := strings.TrimSuffix(target(m), "/") + "/"
		last := ""
		for _, t := range targets {
			inner, ok := strings.CutPrefix(t, outer)
			if !ok || inner == "" || last != "" && strings.HasPrefix(t, last) {
				continue
			}
			last = t + "/"
			if point := filepath.Join(m.SubPath, inner); filepath.IsLocal(point) {
				all = append(all, point)
			}
		}
	}
	return all
}

// target is where the container sees the mount.
func target(m v1.VolumeMount) string { return filepath.Clean("/" + m.MountPath) }
