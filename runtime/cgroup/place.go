package cgroup

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/cgroup/systemd"
)

// place is where the cgroup of a pod is.
type place struct {
	path  string // below the cgroup root
	slice string // systemd's name for it; empty for one that systemd does not know
}

// parent returns what the pod's containers have for a parent.
func (p place) parent() string {
	if p.slice != "" {
		return p.slice
	}
	return p.path
}

// above returns the place that this one is in.
func (p place) above() place {
	up := place{path: path.Dir(p.path)}
	if p.slice != "" && up.path != "/" {
		up.slice = path.Base(up.path)
	}
	return up
}

// place returns where the pod's cgroup is, or will be. Guaranteed pods are directly below the
// parent, others below the cgroup of their class.
func (t Tree) place(pod *v1.Pod) place {
	elements := strings.Split(strings.Trim(t.parent(), "/"), "/")
	if class := podspec.QOS(pod); class != v1.PodQOSGuaranteed {
		elements = append(elements, strings.ToLower(string(class)))
	}
	elements = append(elements, "pod"+string(pod.UID))
	slice := systemd.Slice(elements...)
	asFiles := place{path: "/" + path.Join(elements...)}
	asSlice := place{path: systemd.Path(slice), slice: slice}
	switch {
	case t.exists(asFiles.path):
		return asFiles
	case t.Slices || t.exists(asSlice.path):
		return asSlice
	}
	return asFiles
}

// exists reports whether the cgroup is there.
func (t Tree) exists(p string) bool {
	_, err := os.Stat(filepath.Join(t.dirs["cpu"], p))
	return err == nil
}

func (t Tree) parent() string {
	if t.Parent == "" {
		return DefaultParent
	}
	return path.Join("/", t.Parent)
}
