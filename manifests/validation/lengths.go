package validation

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
)

const (
	// maxFileName and maxPath are the kernel's limits, NAME_MAX and PATH_MAX, in bytes.
	maxFileName = 255
	maxPath     = 4095
	// maxNames is what they leave to the namespace and the name of a pod together, whose logs are in a
	// directory NAMESPACE_NAME_UID (pkg/kubelet/kuberuntime.BuildPodLogsDirectory).
	maxNames = maxFileName - len("__00000000-0000-0000-0000-000000000000")
)

// NamesFit reports whether a node can run a pod of that name: an API server accepts longer ones,
// but a kubelet cannot make the directory of their logs.
func NamesFit(namespace, name string) bool { return len(namespace)+len(name) <= maxNames }

// checkNames refuses a pod whose names are too long for the directory of its logs.
func checkNames(doc decode.Document, p *v1.Pod) decode.Diagnostics {
	if NamesFit(p.Namespace, p.Name) || doc.IsWrong("metadata.name") || doc.IsWrong("metadata.namespace") {
		return nil
	}
	message := fmt.Sprintf("the pod's name has %d bytes and its namespace %d: together they may have %d, so that the directory of its logs, "+
		"NAMESPACE_NAME_UID, can have a name", len(p.Name), len(p.Namespace), maxNames)
	return decode.Diagnostics{doc.Error("metadata.name", message, fmt.Sprintf("shorten it to %d bytes", max(maxNames-len(p.Namespace), 0)))}
}

// checkPaths refuses paths that the kernel does not take.
func (f *finder) checkPaths(prefix string, p *v1.Pod) {
	for i := range p.Spec.InitContainers {
		f.checkContainerPaths(fmt.Sprintf("%sspec.initContainers[%d].", prefix, i), &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		f.checkContainerPaths(fmt.Sprintf("%sspec.containers[%d].", prefix, i), &p.Spec.Containers[i])
	}
	for i := range p.Spec.Volumes {
		f.checkVolumePaths(fmt.Sprintf("%sspec.volumes[%d].", prefix, i), &p.Spec.Volumes[i])
	}
}

func (f *finder) checkContainerPaths(at string, c *v1.Container) {
	f.checkPath(at+"workingDir", c.WorkingDir)
	f.checkPath(at+"terminationMessagePath", c.TerminationMessagePath)
	for i, m := range c.VolumeMounts {
		f.checkPath(fmt.Sprintf("%svolumeMounts[%d].mountPath", at, i), m.MountPath)
		f.checkPath(fmt.Sprintf("%svolumeMounts[%d].subPath", at, i), m.SubPath)
	}
}

func (f *finder) checkVolumePaths(at string, v *v1.Volume) {
	switch {
	case v.HostPath != nil:
		f.checkPath(at+"hostPath.path", v.HostPath.Path)
	case v.ConfigMap != nil:
		f.checkItems(at+"configMap", v.ConfigMap.Items)
	case v.Secret != nil:
		f.checkItems(at+"secret", v.Secret.Items)
	case v.DownwardAPI != nil:
		f.checkFiles(at+"downwardAPI", v.DownwardAPI.Items)
	case v.Projected != nil:
		for i, s := range v.Projected.Sources {
			f.checkSource(fmt.Sprintf("%sprojected.sources[%d].", at, i), &s)
		}
	}
}

// checkSource checks the paths of a source of a projected volume.
func (f *finder) checkSource(at string, s *v1.VolumeProjection) {
	if s.ConfigMap != nil {
		f.checkItems(at+"configMap", s.ConfigMap.Items)
	}
	if s.Secret != nil {
		f.checkItems(at+"secret", s.Secret.Items)
	}
	if s.DownwardAPI != nil {
		f.checkFiles(at+"downwardAPI", s.DownwardAPI.Items)
	}
	if s.ServiceAccountToken != nil {
		f.checkPath(at+"serviceAccountToken.path", s.ServiceAccountToken.Path)
	}
}

func (f *finder) checkItems(at string, items []v1.KeyToPath) {
	for i, item := range items {
		f.checkPath(fmt.Sprintf("%s.items[%d].path", at, i), item.Path)
	}
}

func (f *finder) checkFiles(at string, items []v1.DownwardAPIVolumeFile) {
	for i, item := range items {
		f.checkPath(fmt.Sprintf("%s.items[%d].path", at, i), item.Path)
	}
}

// checkPath refuses a path that is too long, or has a file name that is.
func (f *finder) checkPath(field, path string) {
	if len(path) > maxPath {
		f.fail(field, fmt.Sprintf("has %d bytes, more than the %d of a path", len(path), maxPath), "")
		return
	}
	for name := range strings.SplitSeq(path, "/") {
		if len(name) > maxFileName {
			f.fail(field, fmt.Sprintf("has a file name of %d bytes, more than the %d of a file name: %.20s...", len(name), maxFileName, name), "")
		}
	}
}
