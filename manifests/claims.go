package manifests

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

func (r *reader) claim(e *entry) step {
	o := &v1.PersistentVolumeClaim{}
	return r.keep(e, o, func() { r.checkClaim(e, &o.Spec, "spec.") })
}

func (r *reader) persistentVolume(e *entry) step {
	o := &v1.PersistentVolume{}
	return r.keep(e, o, func() {
		if !r.options.Cluster {
			e.checkVolume(&o.Spec)
		}
	})
}

// checkClaim rejects what is not supported in a claim's spec, whose fields begin with prefix.
func (r *reader) checkClaim(e *entry, s *v1.PersistentVolumeClaimSpec, prefix string) {
	if r.options.Cluster {
		return
	}
	e.checkVolumeMode(s.VolumeMode, prefix)
	const noSource, hint = "not supported: nothing here copies a claim or restores a snapshot", "fill the claim's directory, or use an init container"
	if s.DataSource != nil {
		e.fail(prefix+"dataSource", noSource, hint)
	}
	if s.DataSourceRef != nil && (s.DataSource == nil || s.DataSource.Name != s.DataSourceRef.Name) {
		e.fail(prefix+"dataSourceRef", noSource, hint)
	}
}

// checkVolume rejects what is not supported in a PersistentVolume.
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

// addClaims adds the claims of the templates of workloads and pods, and binds all claims. A cluster
// has controllers for those of pods and for binding.
func (r *reader) addClaims() {
	for _, e := range r.entries {
		for _, c := range e.templated {
			// A controller uses a claim that exists already.
			if _, ok := r.set.Claim(c.Namespace, c.Name); !ok {
				c.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: kindClaim}
				r.put(e, kindClaim, c)
			}
		}
	}
	if r.options.Cluster {
		return
	}
	for _, e := range r.entries {
		for _, pe := range e.pods {
			for i := range pe.pod.Spec.Volumes {
				r.addEphemeral(e, pe, i)
			}
		}
	}
	r.unbound = r.set.bindClaims()
}

// addEphemeral adds the claim of an ephemeral volume (pkg/controller/volume/ephemeral).
func (r *reader) addEphemeral(e *entry, pe podEntry, index int) {
	p, v := pe.pod, &pe.pod.Spec.Volumes[index]
	if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
		return
	}
	name := p.Name + "-" + v.Name
	if _, exists := r.set.Claim(p.Namespace, name); exists {
		e.fail(fmt.Sprintf("%sspec.volumes[%d].name", pe.prefix, index),
			fmt.Sprintf("PVC %q was not created for pod %q (pod is not owner)", p.Namespace+"/"+name, podspec.FullName(p)),
			"rename the volume or the claim")
		return
	}
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	r.set.objects[object{kindClaim, p.Namespace, name}] = &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, Labels: template.Labels, Annotations: template.Annotations},
		Spec:       template.Spec,
	}
}

// checkClaims rejects the pod's claims that cannot be bound.
func (r *reader) checkClaims(e *entry, pe podEntry, refs []reference) {
	for _, ref := range refs {
		if ref.kind != kindClaim {
			continue
		}
		claim, _ := r.set.Claim(pe.pod.Namespace, ref.name)
		if problem := r.unbound[claim]; problem != nil {
			e.fail(pe.prefix+ref.field, fmt.Sprintf("PersistentVolumeClaim %q: %s", ref.name, problem.message), problem.hint)
		}
	}
}
