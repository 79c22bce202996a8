package manifests

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (r *reader) claim(e *entry) {
	o := &v1.PersistentVolumeClaim{}
	if r.keep(e, o) {
		r.set.claims[key{o.Namespace, o.Name}] = o
		e.checkClaim(&o.Spec, "spec.")
	}
}

func (r *reader) persistentVolume(e *entry) {
	o := &v1.PersistentVolume{}
	if r.keep(e, o) {
		r.set.volumes[o.Name] = o
		e.checkVolume(&o.Spec)
	}
}

// checkClaim names what of a claim's spec, whose fields begin with prefix, cannot be had
// without a cluster's storage.
func (e *entry) checkClaim(s *v1.PersistentVolumeClaimSpec, prefix string) {
	e.checkVolumeMode(s.VolumeMode, prefix)
	const noSource, hint = "not supported: nothing here copies a claim or restores a snapshot", "fill the claim's directory, or use an init container"
	if s.DataSource != nil {
		e.fail(prefix+"dataSource", noSource, hint)
	}
	if s.DataSourceRef != nil && (s.DataSource == nil || s.DataSource.Name != s.DataSourceRef.Name) {
		e.fail(prefix+"dataSourceRef", noSource, hint)
	}
}

// checkVolume names what of a PersistentVolume cannot be had.
func (e *entry) checkVolume(s *v1.PersistentVolumeSpec) {
	e.checkVolumeMode(s.VolumeMode, "spec.")
	if len(s.MountOptions) > 0 && s.NFS == nil {
		e.fail("spec.mountOptions", "Mount options are not supported for volume type", "only nfs is mounted here")
	}
	if s.Local != nil && s.Local.FSType != nil {
		e.fail("spec.local.fsType", "not supported: a local volume is a directory here", "mount the device and name the directory")
	}
}

func (e *entry) checkVolumeMode(mode *v1.PersistentVolumeMode, prefix string) {
	if volumeMode(mode) == v1.PersistentVolumeBlock {
		e.fail(prefix+"volumeMode", `"Block" is not supported: no storage driver here attaches raw devices`, "use Filesystem")
	}
}

// addClaims adds the claims that workloads and pods have templates of, and binds all.
func (r *reader) addClaims() {
	for _, c := range r.templated {
		// A controller takes the one that is there already.
		if k := (key{c.Namespace, c.Name}); r.set.claims[k] == nil {
			r.set.claims[k] = c
		}
	}
	for _, e := range r.entries {
		for _, pe := range e.pods {
			for i := range pe.pod.Spec.Volumes {
				r.addEphemeral(e, pe, i)
			}
		}
	}
	r.problems = r.set.bindClaims()
}

// addEphemeral makes the claim of an ephemeral volume (pkg/controller/volume/ephemeral).
func (r *reader) addEphemeral(e *entry, pe podEntry, index int) {
	p, v := pe.pod, &pe.pod.Spec.Volumes[index]
	if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
		return
	}
	k := key{p.Namespace, p.Name + "-" + v.Name}
	if _, taken := r.set.claims[k]; taken {
		e.fail(fmt.Sprintf("%sspec.volumes[%d].name", pe.prefix, index),
			fmt.Sprintf("PVC %q was not created for pod %q (pod is not owner)", k.namespace+"/"+k.name, p.Namespace+"/"+p.Name),
			"rename the volume or the claim")
		return
	}
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	r.set.claims[k] = &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: k.name, Labels: template.Labels, Annotations: template.Annotations},
		Spec:       template.Spec,
	}
}

// checkClaims refuses the pod's claims that no volume can be had for.
func (r *reader) checkClaims(e *entry, pe podEntry) {
	for _, ref := range references(pe.pod) {
		problem := r.problems[key{pe.pod.Namespace, ref.name}]
		if ref.kind == kindClaim && problem != nil {
			e.fail(pe.prefix+ref.field, fmt.Sprintf("PersistentVolumeClaim %q: %s", ref.name, problem.message), problem.hint)
		}
	}
}

// Claim returns a PersistentVolumeClaim of the input, those of templates included. One
// without a spec.volumeName is to be given a directory.
func (s *Set) Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	o, ok := s.claims[key{namespace, name}]
	return o, ok
}

// Claims returns all of the input's PersistentVolumeClaims, in no particular order.
func (s *Set) Claims() []*v1.PersistentVolumeClaim { return slices.Collect(maps.Values(s.claims)) }

// PersistentVolume returns a PersistentVolume of the input.
func (s *Set) PersistentVolume(name string) (*v1.PersistentVolume, bool) {
	o, ok := s.volumes[name]
	return o, ok
}
