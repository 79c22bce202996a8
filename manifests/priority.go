package manifests

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// The priorities of the classes that every cluster has
// (pkg/apis/scheduling/types.go).
const (
	systemNodeCritical    = 2000001000
	systemClusterCritical = 2000000000
)

// setPriority does what the Priority admission plugin does
// (plugin/pkg/admission/priority/admission.go): the class decides, and the global default
// where no class is given. A bare spec.priority stays, as the kubelet leaves it.
func (r *reader) setPriority(e *entry, pe podEntry) {
	p := pe.pod
	name := p.Spec.PriorityClassName
	if name == "" {
		if p.Spec.Priority == nil {
			r.defaultPriority(p)
		}
		return
	}
	value, ok := r.priorityOf(name)
	if !ok && r.broken[object{"PriorityClass", orDefault(""), name}] {
		e.fail(pe.prefix+"spec.priorityClassName", fmt.Sprintf("PriorityClass %q has errors", name), "")
		return
	}
	if !ok {
		names := []string{nodeCriticalClass, clusterCriticalClass}
		for n := range r.set.priorityClasses {
			names = append(names, n)
		}
		hint := cmp.Or(decode.DidYouMean(name, names), "add a PriorityClass document")
		e.fail(pe.prefix+"spec.priorityClassName", fmt.Sprintf("no PriorityClass named %q is in the input", name), hint)
		return
	}
	if p.Spec.Priority != nil && *p.Spec.Priority != value {
		e.fail(pe.prefix+"spec.priority", fmt.Sprintf("is %d, but PriorityClass %q has the value %d", *p.Spec.Priority, name, value), "leave it out")
	}
	p.Spec.Priority = &value
}

const (
	nodeCriticalClass    = "system-node-critical"
	clusterCriticalClass = "system-cluster-critical"
)

func (r *reader) priorityOf(class string) (int32, bool) {
	switch class {
	case nodeCriticalClass:
		return systemNodeCritical, true
	case clusterCriticalClass:
		return systemClusterCritical, true
	}
	if c := r.set.priorityClasses[class]; c != nil {
		return c.Value, true
	}
	return 0, false
}

// defaultPriority is that of the global default class, the lowest one where several claim
// to be it, or 0.
func (r *reader) defaultPriority(p *v1.Pod) {
	best := &schedulingv1.PriorityClass{}
	for _, c := range r.set.priorityClasses {
		if c.GlobalDefault && (best.Name == "" || c.Value < best.Value || (c.Value == best.Value && c.Name < best.Name)) {
			best = c
		}
	}
	value := best.Value
	p.Spec.PriorityClassName, p.Spec.Priority = best.Name, &value
}
