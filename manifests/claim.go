package manifests

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runonce/runonce/manifests/claims"
	"github.com/runonce/runonce/manifests/refs"
)

func (r *reader) claim(e *entry) {
	o := &v1.PersistentVolumeClaim{}
	if r.keep(e, o, &o.ObjectMeta, func() field.ErrorList { return r.rules.PersistentVolumeClaim(o) }) {
		r.set.claims[key{o.Namespace, o.Name}] = o
		e.claimFaults(claims.Check(&o.Spec, "spec."))
	}
}

func (r *reader) persistentVolume(e *entry) {
	o := &v1.PersistentVolume{}
	if r.keep(e, o, &o.ObjectMeta, func() field.ErrorList { return r.rules.PersistentVolume(o) }) {
		r.set.volumes[o.Name] = o
		e.claimFaults(claims.CheckVolume(o))
	}
}

func (e *entry) claimFaults(faults []claims.Fault) {
	for _, f := range faults {
		e.fault(f.Field, f.Message, f.Hint)
	}
}

// bindClaims adds the claims that workloads and pods have templates of, and binds all.
func (r *reader) bindClaims() {
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
	r.problems = claims.Bind(slices.Collect(maps.Values(r.set.claims)), slices.Collect(maps.Values(r.set.volumes)))
}

// addEphemeral makes the claim of an ephemeral volume (pkg/controller/volume/ephemeral).
func (r *reader) addEphemeral(e *entry, pe podEntry, index int) {
	p, v := pe.pod, &pe.pod.Spec.Volumes[index]
	if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
		return
	}
	k := key{p.Namespace, p.Name + "-" + v.Name}
	if _, taken := r.set.claims[k]; taken {
		e.fault(fmt.Sprintf("%sspec.volumes[%d].name", pe.prefix, index),
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

// checkClaims faults the pod's claims that no volume can be had for.
func (r *reader) checkClaims(e *entry, pe podEntry) {
	for _, ref := range refs.Of(pe.pod) {
		problem, bad := r.problems[pe.pod.Namespace+"/"+ref.Name]
		if ref.Kind == refs.Claim && bad {
			e.fault(pe.prefix+ref.Field, fmt.Sprintf("PersistentVolumeClaim %q: %s", ref.Name, problem.Message), problem.Hint)
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
