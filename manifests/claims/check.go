package claims

import (
	v1 "k8s.io/api/core/v1"
)

// Fault is what of a claim or volume cannot be had here.
type Fault struct {
	Field   string // below the object
	Message string
	Hint    string
}

// Check names what of a claim's spec, whose fields begin with prefix, cannot be had
// without a cluster's storage.
func Check(s *v1.PersistentVolumeClaimSpec, prefix string) []Fault {
	var faults []Fault
	if mode(s.VolumeMode) == v1.PersistentVolumeBlock {
		faults = append(faults, Fault{prefix + "volumeMode", `"Block" refused: no driver here attaches raw devices`, "use Filesystem"})
	}
	const noSource = "refused: nothing here copies a claim or restores a snapshot"
	if s.DataSource != nil {
		faults = append(faults, Fault{prefix + "dataSource", noSource, "fill the claim's directory, or use an init container"})
	}
	if s.DataSourceRef != nil && (s.DataSource == nil || s.DataSource.Name != s.DataSourceRef.Name) {
		faults = append(faults, Fault{prefix + "dataSourceRef", noSource, "fill the claim's directory, or use an init container"})
	}
	return faults
}

// CheckVolume names what of a PersistentVolume cannot be had.
func CheckVolume(v *v1.PersistentVolume) []Fault {
	var faults []Fault
	if mode(v.Spec.VolumeMode) == v1.PersistentVolumeBlock {
		faults = append(faults, Fault{"spec.volumeMode", `"Block" refused: no driver here attaches raw devices`, "use Filesystem"})
	}
	if len(v.Spec.MountOptions) > 0 && v.Spec.NFS == nil {
		faults = append(faults, Fault{"spec.mountOptions", "refused: Mount options are not supported for volume type", "only nfs is mounted here"})
	}
	if l := v.Spec.Local; l != nil && l.FSType != nil {
		faults = append(faults, Fault{"spec.local.fsType", "refused: a local volume is a directory here", "mount the device and name the directory"})
	}
	return faults
}
