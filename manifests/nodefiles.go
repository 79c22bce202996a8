package manifests

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// checkNodeFiles warns of a volume of files that is mounted on a directory in which a node mounts files
// of its own, unless it has those: it is read-only, so runc can make nothing there to mount them on. crun
// makes it before the volume is read-only, and the runtime of a RuntimeClass may have other means.
func (r *reader) checkNodeFiles(e *entry, pe podEntry) {
	if pe.pod.Spec.RuntimeClassName != nil {
		return
	}
	for kind, list := range map[string][]v1.Container{"initContainers": pe.pod.Spec.InitContainers, "containers": pe.pod.Spec.Containers} {
		for i := range list {
			r.checkNodeFilesOf(e, pe, fmt.Sprintf("%sspec.%s[%d]", pe.prefix, kind, i), &list[i])
		}
	}
}

func (r *reader) checkNodeFilesOf(e *entry, pe podEntry, at string, c *v1.Container) {
	target := func(m v1.VolumeMount) string { return path.Clean("/" + m.MountPath) }
	for i, m := range c.VolumeMounts {
		volume := volumeNamed(pe.pod, m.Name)
		if volume == nil || m.SubPath != "" || m.SubPathExpr != "" {
			continue
		}
		for _, f := range podspec.NodeFiles(c) {
			dir, name := path.Split(path.Clean(f.Path))
			mounted := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return target(m) == path.Clean(f.Path) })
			if path.Clean(dir) == target(m) && !mounted && r.lacks(pe.pod, volume, name) {
				e.warn(fmt.Sprintf("%s.volumeMounts[%d].mountPath", at, i),
					fmt.Sprintf("volume %q is read-only and has no %s: runc cannot mount %s in it", m.Name, name, f.Path), f.Remedy)
				break // the others are in the same directory
			}
		}
	}
}

func volumeNamed(p *v1.Pod, name string) *v1.Volume {
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == name {
			return &p.Spec.Volumes[i]
		}
	}
	return nil
}

// lacks reports whether it is certain that a volume of files has none of that name at its top.
func (r *reader) lacks(p *v1.Pod, volume *v1.Volume, name string) bool {
	f := fileFinder{r.set, p.Namespace, name}
	switch {
	case volume.ConfigMap != nil:
		return !f.in(kindConfigMap, volume.ConfigMap.Name, volume.ConfigMap.Items)
	case volume.Secret != nil:
		return !f.in(kindSecret, volume.Secret.SecretName, volume.Secret.Items)
	case volume.DownwardAPI != nil:
		return !f.inMetadata(volume.DownwardAPI.Items)
	case volume.Projected != nil:
		return !slices.ContainsFunc(volume.Projected.Sources, f.inSource)
	}
	return false
}

// fileFinder looks for a file or directory at the top of a volume.
type fileFinder struct {
	set             *Set
	namespace, name string
}

// is says whether the path is, or is in, what is looked for.
func (f fileFinder) is(file string) bool {
	first, _, _ := strings.Cut(file, "/")
	return first == f.name
}

// in looks among the items of a ConfigMap or a Secret, or among all its keys. What is not in the input
// may have any.
func (f fileFinder) in(kind, name string, items []v1.KeyToPath) bool {
	if len(items) == 0 {
		id := object{kind, f.namespace, name}
		return f.set.objects[id] == nil || f.set.hasKey(id, f.name)
	}
	return slices.ContainsFunc(items, func(item v1.KeyToPath) bool { return f.is(item.Path) })
}

func (f fileFinder) inMetadata(items []v1.DownwardAPIVolumeFile) bool {
	return slices.ContainsFunc(items, func(item v1.DownwardAPIVolumeFile) bool { return f.is(item.Path) })
}

func (f fileFinder) inSource(s v1.VolumeProjection) bool {
	return s.ConfigMap != nil && f.in(kindConfigMap, s.ConfigMap.Name, s.ConfigMap.Items) ||
		s.Secret != nil && f.in(kindSecret, s.Secret.Name, s.Secret.Items) ||
		s.DownwardAPI != nil && f.inMetadata(s.DownwardAPI.Items) ||
		s.ServiceAccountToken != nil && f.is(s.ServiceAccountToken.Path)
}
