package volume

import (
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// source is the source of a pod's volume with its claim resolved: a PersistentVolume of type
// hostPath or NFS is treated as if the pod had named it directly.
type source struct {
	v1.VolumeSource
	path     string // of the content on the host
	readOnly bool
	claim    *v1.PersistentVolumeClaim
	local    bool // the claim is bound to a local PersistentVolume
	// mountOptions are those of the PersistentVolume.
	mountOptions []string
}

// source returns the volume's source.
func (m *Manager) source(pod *v1.Pod, v *v1.Volume) (source, error) {
	s := source{VolumeSource: v.VolumeSource, path: m.path(pod, v)}
	switch {
	case v.HostPath != nil:
		s.path = v.HostPath.Path
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return m.claimSource(pod, v)
	case v.NFS != nil:
		s.readOnly = v.NFS.ReadOnly
	case v.GCEPersistentDisk != nil:
		s.readOnly = v.GCEPersistentDisk.ReadOnly
	default:
		s.readOnly = v.EmptyDir == nil
	}
	return s, nil
}

// claimSource resolves the volume's claim and the PersistentVolume that it is bound to.
func (m *Manager) claimSource(pod *v1.Pod, v *v1.Volume) (source, error) {
	s := source{VolumeSource: v.VolumeSource, path: m.path(pod, v)}
	name := ephemeral.VolumeClaimName(pod, v)
	if c := v.PersistentVolumeClaim; c != nil {
		name = c.ClaimName
		s.path, s.readOnly = filepath.Join(m.ClaimsDir, pod.Namespace, name), c.ReadOnly
	}
	var ok bool
	objects := podspec.ObjectsOf(pod, m.Objects)
	if s.claim, ok = objects.Claim(pod.Namespace, name); !ok {
		return s, failure.FailedMountf("persistentvolumeclaim %q not found", name)
	}
	s.readOnly = s.readOnly || readOnlyMany(s.claim.Spec.AccessModes)
	if s.claim.Spec.VolumeName == "" {
		return s, nil
	}
	pv, ok := objects.PersistentVolume(s.claim.Spec.VolumeName)
	if !ok {
		return s, failure.FailedMountf("persistentvolume %q not found", s.claim.Spec.VolumeName)
	}
	return m.persistentVolume(pod, s, pv)
}

// readOnlyMany reports whether a claim may only be read.
func readOnlyMany(modes []v1.PersistentVolumeAccessMode) bool {
	return len(modes) > 0 && !slices.ContainsFunc(modes, func(m v1.PersistentVolumeAccessMode) bool { return m != v1.ReadOnlyMany })
}

// persistentVolume completes the source from the PersistentVolume.
func (m *Manager) persistentVolume(pod *v1.Pod, s source, pv *v1.PersistentVolume) (source, error) {
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

// path returns the path of a volume in the pod's directory.
func (m *Manager) path(pod *v1.Pod, v *v1.Volume) string {
	return m.dir(pod, volumesDir, plugin(&v.VolumeSource), v.Name)
}

// The directories of volumes whose content is not the pod's own.
const (
	NFSDir    = "kubernetes.io~nfs"
	ImagesDir = "kubernetes.io~image"
)

// plugin returns the volume plugin's name in paths, as the kubelet escapes it.
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
		return NFSDir
	case s.GCEPersistentDisk != nil:
		return "kubernetes.io~gce-pd"
	case s.Ephemeral != nil:
		return "kubernetes.io~local-volume"
	case s.Image != nil:
		return ImagesDir
	}
	return "kubernetes.io~projected"
}
