package volume

import (
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// source is what a volume of a pod is made from, its claim resolved: that of a volume by
// hostPath or NFS is as if the pod had named it itself.
type source struct {
	v1.VolumeSource
	path     string // of the content on the host
	readOnly bool   // nobody may write
	// claim is that of the volume, local says that its volume is a local directory.
	claim *v1.PersistentVolumeClaim
	local bool
	// mountOptions are those of the PersistentVolume.
	mountOptions []string
}

// source returns what the volume is made from.
func (m *Manager) source(pod *v1.Pod, v *v1.Volume) (source, error) {
	s := source{VolumeSource: v.VolumeSource, path: m.path(pod, v)}
	switch {
	case v.HostPath != nil:
		s.path = v.HostPath.Path
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return m.ofClaim(pod, v)
	case v.NFS != nil:
		s.readOnly = v.NFS.ReadOnly
	default:
		s.readOnly = v.EmptyDir == nil
	}
	return s, nil
}

// ofClaim resolves the volume's claim, and the PersistentVolume that it is bound to.
func (m *Manager) ofClaim(pod *v1.Pod, v *v1.Volume) (source, error) {
	s := source{VolumeSource: v.VolumeSource, path: m.path(pod, v)}
	name := ClaimName(pod, v)
	if c := v.PersistentVolumeClaim; c != nil {
		s.path, s.readOnly = filepath.Join(m.ClaimsDir, pod.Namespace, name), c.ReadOnly
	}
	var ok bool
	if m.Objects != nil {
		s.claim, ok = m.Objects.Claim(pod.Namespace, name)
	}
	if !ok {
		return s, failure.FailedMountf("persistentvolumeclaim %q not found", name)
	}
	s.readOnly = s.readOnly || onlyRead(s.claim.Spec.AccessModes)
	if s.claim.Spec.VolumeName == "" {
		return s, nil
	}
	pv, ok := m.Objects.PersistentVolume(s.claim.Spec.VolumeName)
	if !ok {
		return s, failure.FailedMountf("persistentvolume %q not found", s.claim.Spec.VolumeName)
	}
	return m.ofVolume(pod, s, pv)
}

// onlyRead says that a claim may be read, by many, and not be written.
func onlyRead(modes []v1.PersistentVolumeAccessMode) bool {
	return len(modes) > 0 && !slices.ContainsFunc(modes, func(m v1.PersistentVolumeAccessMode) bool { return m != v1.ReadOnlyMany })
}

// ofVolume takes the place of the content from the PersistentVolume.
func (m *Manager) ofVolume(pod *v1.Pod, s source, pv *v1.PersistentVolume) (source, error) {
	s.mountOptions = pv.Spec.MountOptions
	switch from := pv.Spec.PersistentVolumeSource; {
	case from.HostPath != nil:
		s.VolumeSource, s.path = v1.VolumeSource{HostPath: from.HostPath}, from.HostPath.Path
	case from.Local != nil:
		s.VolumeSource, s.path, s.local = v1.VolumeSource{}, from.Local.Path, true
	case from.NFS != nil:
		s.VolumeSource = v1.VolumeSource{NFS: from.NFS}
		s.path = m.dir(pod, volumesDir, plugin(&s.VolumeSource), pv.Name)
		s.readOnly = s.readOnly || from.NFS.ReadOnly
	default:
		return s, failure.FailedMountf("persistentvolume %q: unsupported volume type", pv.Name)
	}
	return s, nil
}

// ClaimName returns the name of the volume's claim, that of an ephemeral volume being made
// of pod and volume (component-helpers/storage/ephemeral), or "".
func ClaimName(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// path returns where a volume of the pod's own has its place.
func (m *Manager) path(pod *v1.Pod, v *v1.Volume) string {
	return m.dir(pod, volumesDir, plugin(&v.VolumeSource), v.Name)
}

// plugin returns the name of the volume's kind in paths, as the kubelet escapes it.
func plugin(s *v1.VolumeSource) string {
	switch {
	case s.EmptyDir != nil:
		return "kubernetes.io~empty-dir"
	case s.ConfigMap != nil:
		return "kubernetes.io~configmap"
	case s.Secret != nil:
		return "kubernetes.io~secret"
	case s.DownwardAPI != nil:
		return "kubernetes.io~downward-api"
	case s.NFS != nil:
		return "kubernetes.io~nfs"
	case s.Ephemeral != nil:
		return "kubernetes.io~local-volume"
	case s.Image != nil:
		return "kubernetes.io~image"
	}
	return "kubernetes.io~projected"
}
