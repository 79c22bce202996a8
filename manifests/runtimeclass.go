package manifests

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/validation"
)

// setRuntimeClass does what the RuntimeClass admission plugin does
// (plugin/pkg/admission/runtimeclass/admission.go): the pod gets the overhead, the node selector
// and the tolerations of the class. An annotation gets its handler, for those who see the pod
// without the class.
func (r *reader) setRuntimeClass(e *entry, pe podEntry) {
	delete(pe.pod.Annotations, podspec.AnnotationRuntimeHandler)
	var class *nodev1.RuntimeClass
	if name := pe.pod.Spec.RuntimeClassName; name != nil {
		if class = r.runtimeClassOf(e, pe, *name); class == nil {
			return
		}
		metav1.SetMetaDataAnnotation(&pe.pod.ObjectMeta, podspec.AnnotationRuntimeHandler, class.Handler)
	}
	setOverhead(e, pe, class)
	if class != nil && class.Scheduling != nil {
		r.setScheduling(e, pe, class.Scheduling)
	}
}

// runtimeClassOf returns the class of that name, or rejects the pod and returns nil.
func (r *reader) runtimeClassOf(e *entry, pe podEntry, name string) *nodev1.RuntimeClass {
	class, ok := r.set.RuntimeClass(name)
	if field := pe.prefix + "spec.runtimeClassName"; !ok && !r.checkBroken(e, field, object{kind: kindRuntimeClass, name: name}) {
		hint := cmp.Or(decode.DidYouMean(name, r.names().of[object{kind: kindRuntimeClass}]), "add a RuntimeClass document")
		e.fail(field, fmt.Sprintf("pod rejected: RuntimeClass %q not found", name), hint)
	}
	return class
}

func setOverhead(e *entry, pe podEntry, class *nodev1.RuntimeClass) {
	spec, field := &pe.pod.Spec, pe.prefix+"spec.overhead"
	if class == nil || class.Overhead == nil {
		if spec.Overhead != nil {
			e.fail(field, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead", "leave it out, or give the RuntimeClass an overhead")
		}
		return
	}
	if len(spec.Overhead) > 0 && !apiequality.Semantic.DeepEqual(class.Overhead.PodFixed, spec.Overhead) {
		e.fail(field, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead", "leave it out")
		return
	}
	spec.Overhead = class.Overhead.PodFixed.DeepCopy()
}

func (r *reader) setScheduling(e *entry, pe podEntry, s *nodev1.Scheduling) {
	spec := &pe.pod.Spec
	for _, k := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		if have, ok := spec.NodeSelector[k]; ok && have != s.NodeSelector[k] {
			e.fail(pe.prefix+"spec.nodeSelector", fmt.Sprintf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s",
				k, s.NodeSelector[k], k, have), "")
		}
	}
	selector := map[string]string{}
	maps.Copy(selector, s.NodeSelector)
	maps.Copy(selector, spec.NodeSelector)
	spec.NodeSelector = selector
	merged, err := validation.MergeTolerations(spec.Tolerations, slices.Clone(s.Tolerations))
	if err != nil {
		e.fail(pe.prefix+"spec.tolerations", err.Error(), "")
		return
	}
	spec.Tolerations = merged
}
