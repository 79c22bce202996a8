package report

import (
	"encoding/json"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// volumes describes volumes, without what is in them.
func (s *sections) volumes(all []v1.Volume) {
	if len(all) == 0 {
		s.line(0, "Volumes:", none)
		return
	}
	s.line(0, "Volumes:")
	for i := range all {
		s.line(1, all[i].Name+":")
		s.volume(&all[i].VolumeSource)
	}
}

// volume describes what kinds of volumes have that a machine has, too, and names all others.
func (s *sections) volume(v *v1.VolumeSource) {
	kind := func(text string) { s.line(level, "Type:", text) }
	switch {
	case v.HostPath != nil:
		kind("HostPath (bare host directory volume)")
		s.line(level, "Path:", v.HostPath.Path)
		s.line(level, "HostPathType:", hostPathText(v.HostPath))
	case v.EmptyDir != nil:
		kind("EmptyDir (a temporary directory that shares a pod's lifetime)")
		s.line(level, "Medium:", string(v.EmptyDir.Medium))
		s.line(level, "SizeLimit:", sizeText(v.EmptyDir))
	case v.Secret != nil:
		kind("Secret (a volume populated by a Secret)")
		s.line(level, "SecretName:", v.Secret.SecretName)
		s.optionalSource(v.Secret.Optional)
	case v.ConfigMap != nil:
		kind("ConfigMap (a volume populated by a ConfigMap)")
		s.line(level, "Name:", v.ConfigMap.Name)
		s.optionalSource(v.ConfigMap.Optional)
	case v.Projected != nil:
		kind("Projected (a volume that contains injected data from multiple sources)")
		for _, source := range v.Projected.Sources {
			s.projection(source)
		}
	case v.DownwardAPI != nil:
		kind("DownwardAPI (a volume populated by information about the pod)")
		s.line(level, "Items:")
		for _, item := range v.DownwardAPI.Items {
			s.line(level+1, itemText(item))
		}
	case v.PersistentVolumeClaim != nil:
		kind("PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)")
		s.line(level, "ClaimName:", v.PersistentVolumeClaim.ClaimName)
		s.line(level, "ReadOnly:", strconv.FormatBool(v.PersistentVolumeClaim.ReadOnly))
	case v.NFS != nil:
		kind("NFS (an NFS mount that lasts the lifetime of a pod)")
		s.line(level, "Server:", v.NFS.Server)
		s.line(level, "Path:", v.NFS.Path)
		s.line(level, "ReadOnly:", strconv.FormatBool(v.NFS.ReadOnly))
	case v.GCEPersistentDisk != nil:
		kind("GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)")
		s.line(level, "PDName:", v.GCEPersistentDisk.PDName)
		s.line(level, "FSType:", v.GCEPersistentDisk.FSType)
		s.line(level, "Partition:", strconv.Itoa(int(v.GCEPersistentDisk.Partition)))
		s.line(level, "ReadOnly:", strconv.FormatBool(v.GCEPersistentDisk.ReadOnly))
	case v.Image != nil:
		kind("Image (a container image or OCI artifact)")
		s.line(level, "Reference:", v.Image.Reference)
		s.line(level, "PullPolicy:", string(v.Image.PullPolicy))
	default:
		kind(fieldOf(v))
	}
}

func hostPathText(v *v1.HostPathVolumeSource) string {
	if v.Type == nil {
		return none
	}
	return string(*v.Type)
}

func sizeText(v *v1.EmptyDirVolumeSource) string {
	if v.SizeLimit == nil || v.SizeLimit.Sign() <= 0 {
		return "<unset>"
	}
	return v.SizeLimit.String()
}

// itemText says which field is in which file.
func itemText(item v1.DownwardAPIVolumeFile) string {
	switch {
	case item.FieldRef != nil:
		return item.FieldRef.FieldPath + " -> " + item.Path
	case item.ResourceFieldRef != nil:
		return item.ResourceFieldRef.Resource + " -> " + item.Path
	}
	return item.Path
}

func (s *sections) optionalSource(optional *bool) {
	s.line(level, "Optional:", strconv.FormatBool(optional != nil && *optional))
}

// projection describes one source of a projected volume.
func (s *sections) projection(p v1.VolumeProjection) {
	switch {
	case p.Secret != nil:
		s.line(level, "SecretName:", p.Secret.Name)
		s.optionalSource(p.Secret.Optional)
	case p.ConfigMap != nil:
		s.line(level, "ConfigMapName:", p.ConfigMap.Name)
		s.optionalSource(p.ConfigMap.Optional)
	case p.DownwardAPI != nil:
		s.line(level, "DownwardAPI:", "true")
	case p.ServiceAccountToken != nil:
		if seconds := p.ServiceAccountToken.ExpirationSeconds; seconds != nil {
			s.line(level, "TokenExpirationSeconds:", strconv.FormatInt(*seconds, 10))
		}
	}
}

// fieldOf returns the name of the field of a source that is set.
func fieldOf(v *v1.VolumeSource) string {
	var fields map[string]json.RawMessage
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	for name := range fields {
		if err == nil {
			return name
		}
	}
	return "<unknown>"
}
