package cgroup

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// location is where a cgroup is.
type location struct {
	path  string // below the cgroup root
	slice string // the name of the systemd slice; empty for a cgroup that is not a unit
}

// parent returns what the pod's containers have as cgroup parent.
func (l location) parent() string {
	if l.slice != "" {
		return l.slice
	}
	return l.path
}

// above returns the location of the cgroup that this one is in.
func (l location) above() location {
	up := location{path: path.Dir(l.path)}
	if l.slice != "" && up.path != "/" {
		up.slice = path.Base(up.path)
	}
	return up
}

// locate returns where the pod's cgroup is, or will be. Guaranteed pods are directly below the
// parent, others below the cgroup of their QoS class.
func (t Tree) locate(pod *v1.Pod) location {
	asFiles, asSlice := t.locations(pod)
	if !t.exists(asFiles.path) && (t.systemd || t.exists(asSlice.path)) {
		return asSlice
	}
	return asFiles
}

// locations returns the two places for the pod's cgroup: a directory and a slice of systemd.
func (t Tree) locations(pod *v1.Pod) (asFiles, asSlice location) {
	var elements []string
	if class := podspec.QOS(pod); class != v1.PodQOSGuaranteed {
		elements = append(elements, strings.ToLower(string(class)))
	}
	return t.below(append(elements, "pod"+string(pod.UID))...)
}

// below returns the two places for a cgroup with this path below the parent.
func (t Tree) below(elements ...string) (asFiles, asSlice location) {
	elements = append(strings.Split(strings.Trim(t.parent(), "/"), "/"), elements...)
	slice := sliceName(elements...)
	return location{path: "/" + path.Join(elements...)}, location{path: slicePath(slice), slice: slice}
}

// Holds reports whether a process whose cgroup has the path is in the pod, whose cgroup is below
// the parent. The path may be below that of a container in which this program runs.
func Holds(parent string, pod *v1.Pod, path string) bool {
	asFiles, asSlice := Tree{Parent: parent}.locations(pod)
	return isIn(path, asFiles, asSlice)
}

// HoldsAll reports whether the cgroup with the path is the one that contains those of all pods, or is in it. The
// path may be below that of a container in which this program runs.
func HoldsAll(parent, path string) bool {
	asFiles, asSlice := Tree{Parent: parent}.below()
	return isIn(path, asFiles, asSlice)
}

// isIn reports whether the path is that of one of the locations, or below it.
func isIn(path string, locations ...location) bool {
	return slices.ContainsFunc(locations, func(l location) bool { return strings.Contains(path+"/", l.path+"/") })
}

// exists reports whether the cgroup exists.
func (t Tree) exists(p string) bool {
	_, err := os.Stat(filepath.Join(t.dirs["cpu"], p))
	return err == nil
}

func (t Tree) parent() string {
	return path.Join("/", t.base, cmp.Or(t.Parent, DefaultParent))
}
