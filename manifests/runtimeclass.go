package manifests

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/validation"
)

// setRuntimeClass does what the RuntimeClass admission plugin does
// (plugin/pkg/admission/runtimeclass/admission.go): it takes over the overhead, the node
// selector and the tolerations of the class. The class' handler goes into an annotation,
// so that the pod is known by it when the class is not at hand.
func (r *reader) setRuntimeClass(e *entry, pe podEntry) {
	delete(pe.pod.Annotations, podspec.AnnotationRuntimeHandler)
	var class *nodev1.RuntimeClass
	if name := pe.pod.Spec.RuntimeClassName; name != nil {
		if class = r.runtimeClassOf(e, pe, *name); class == nil {
			return
		}
		if pe.pod.Annotations == nil {
			pe.pod.Annotations = map[string]string{}
		}
		pe.pod.Annotations[podspec.AnnotationRuntimeHandler] = class.Handler
	}
	setOverhead(e, pe, class)
	if class != nil && class.Scheduling != nil {
		r.setScheduling(e, pe, class.Scheduling)
	}
}

// runtimeClassOf returns the class of that name, or refuses the pod and returns nil.
func (r *reader) runtimeClassOf(e *entry, pe podEntry, name string) *nodev1.RuntimeClass {
	if class := r.set.runtimeClasses[name]; class != nil {
		return class
	}
	path := pe.prefix + "spec.runtimeClassName"
	if r.broken[object{"RuntimeClass", orDefault(""), name}] {
		e.fail(path, fmt.Sprintf("RuntimeClass %q has errors", name), "")
		return nil
	}
	near := decode.DidYouMean(name, slices.Sorted(maps.Keys(r.set.runtimeClasses)))
	e.fail(path, fmt.Sprintf("pod rejected: RuntimeClass %q not found", name), cmp.Or(near, "add a RuntimeClass document"))
	return nil
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
	selector := maps.Clone(s.NodeSelector)
	if selector == nil {
		selector = map[string]string{}
	}
	maps.Copy(selector, spec.NodeSelector)
	spec.NodeSelector = selector
	merged, err := validation.MergeTolerations(spec.Tolerations, slices.Clone(s.Tolerations))
	if err != nil {
		e.fail(pe.prefix+"spec.tolerations", err.Error(), "")
		return
	}
	spec.Tolerations = merged
}
