package manifests

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// priorities are the values of the priority classes, and the class of pods that name none.
type priorities struct {
	values       map[string]int32
	names        func() []string // sorted
	defaultClass schedulingv1.PriorityClass
}

// priorities collects the classes that every cluster has (pkg/apis/scheduling/types.go) and
// those of the input. Of several global defaults the lowest one counts.
func (s *Set) priorities() priorities {
	p := priorities{values: map[string]int32{"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}}
	for _, c := range all[*schedulingv1.PriorityClass](s) {
		p.values[c.Name] = c.Value
		best := &p.defaultClass
		if c.GlobalDefault && (best.Name == "" || cmp.Or(cmp.Compare(c.Value, best.Value), cmp.Compare(c.Name, best.Name)) < 0) {
			p.defaultClass = *c
		}
	}
	p.names = sync.OnceValue(func() []string { return slices.Sorted(maps.Keys(p.values)) })
	return p
}

// setPriority does what the Priority admission plugin does
// (plugin/pkg/admission/priority/admission.go): it sets the value of the class, or the global
// default where there is no class. A bare spec.priority stays, as the kubelet leaves it.
func (r *reader) setPriority(e *entry, pe podEntry) {
	spec := &pe.pod.Spec
	if spec.PriorityClassName == "" {
		if spec.Priority == nil && !r.options.Cluster {
			spec.PriorityClassName, spec.Priority = r.priorities.defaultClass.Name, new(r.priorities.defaultClass.Value)
		}
		return
	}
	name := spec.PriorityClassName
	value, ok := r.priorities.values[name]
	if !ok && r.options.Cluster {
		return
	}
	if !ok {
		if field := pe.prefix + "spec.priorityClassName"; !r.checkBroken(e, field, object{kind: kindPriorityClass, name: name}) {
			hint := cmp.Or(decode.DidYouMean(name, r.priorities.names()), "add a PriorityClass document")
			e.fail(field, fmt.Sprintf("no PriorityClass named %q is in the input", name), hint)
		}
		return
	}
	if spec.Priority != nil && *spec.Priority != value {
		e.fail(pe.prefix+"spec.priority", fmt.Sprintf("is %d, but PriorityClass %q has the value %d", *spec.Priority, name, value), "leave it out")
	}
	spec.Priority = &value
}
