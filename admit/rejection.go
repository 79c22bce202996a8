package admit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/runonce/runonce/admit/predicates"
)

// What the kubelet says of a critical pod for which it finds no victims
// (pkg/kubelet/preemption), and the API server of one that exists (metav1.StatusReasonConflict).
const (
	reasonUnexpected  = "UnexpectedAdmissionError"
	messageUnexpected = "Unexpected error while attempting to recover from admission failure: preemption: " +
		"error finding a set of pods to preempt: no set of running pods found to reclaim resources: "
	reasonConflict  = "Conflict"
	messageConflict = "another run is about to start a pod of this namespace and name with other content"
)

// rejection returns why the pod is rejected, the reason to report first in front; nothing
// when it fits, or fits once the pods go that it preempts.
func (p *planner) rejection(e *entry) []Reason {
	early, place, late := p.predicates(e)
	short := p.allocated.insufficient(e.requests)
	resources := make([]Reason, 0, len(short))
	for _, r := range short {
		resources = append(resources, p.outOf(e, r.resource))
	}
	blockers, users := p.ports.conflicts(e.ports), p.claims.conflicts(e)
	var conflicts []Reason
	if len(blockers) > 0 {
		conflicts = append(conflicts, Reason{"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"})
	}
	if len(users) > 0 {
		conflicts = append(conflicts, Reason{"VolumeRestrictions", "Predicate VolumeRestrictions failed: " + messageOnePod})
		blockers = append(blockers, users...)
	}
	if !Critical(e.pod) {
		return slices.Concat(early, resources, place, conflicts, late)
	}
	// The kubelet names a critical pod's lack of resources after all other reasons, since
	// preemption is to make up for it.
	fixed := slices.ContainsFunc(blockers, func(h holder) bool { return h.by == nil || !h.by.preemptable(e) })
	if fixed || len(early)+len(place)+len(late) > 0 {
		return slices.Concat(early, place, conflicts, late, resources)
	}
	left := p.preempt(e, short, blockers)
	if len(left) == 0 {
		return nil
	}
	return slices.Concat([]Reason{{reasonUnexpected, messageUnexpected + p.list(left)}}, resources, conflicts)
}

// predicates returns the reasons that no preemption can remove: those that the kubelet
// finds before it looks at resources, between resources and host ports, and after these.
func (p *planner) predicates(e *entry) (early, place, late []Reason) {
	subject := predicates.Subject{Pod: e.pod, QOS: e.qos, Critical: Critical(e.pod)}
	limits := predicates.Options{
		UnsafeSysctls: p.o.AllowUnsafeSysctls, AppArmor: p.o.AppArmor, RuntimeHandlers: p.o.RuntimeHandlers,
		Unable: p.o.Unable[e.pod.UID],
	}
	early = converted(predicates.Early(subject, p.node, limits))
	if e.rival != nil {
		early = append(early, Reason{reasonConflict, messageConflict})
	}
	place = converted(predicates.Place(subject, p.node))
	if p.elsewhere(e.pod) {
		place = append(place, Reason{"VolumeBinding", "Predicate VolumeBinding failed: " + messageAffinity})
	}
	late = append(converted(predicates.Late(subject, p.node, limits)), p.o.nfs(e.pod)...)
	return early, place, late
}

// converted returns the reasons as this package's.
func converted(reasons []predicates.Reason) []Reason {
	all := make([]Reason, 0, len(reasons))
	for _, r := range reasons {
		all = append(all, Reason(r))
	}
	return all
}

// outOf returns the kubelet's words for a resource of which too little is left.
func (p *planner) outOf(e *entry, resource int) Reason {
	name := p.allocated.names[resource]
	return Reason{
		Reason: "OutOf" + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, e.requested(resource), p.allocated.used[resource], p.allocated.capacity[resource]),
	}
}

// requested returns how much the pod asks of a resource.
func (e *entry) requested(resource int) int64 {
	for _, r := range e.requests {
		if r.resource == resource {
			return r.amount
		}
	}
	return 0
}

// list writes requests as the kubelet does (admissionRequirementList.toString).
func (p *planner) list(requests []request) string {
	var b strings.Builder
	b.WriteByte('[')
	for _, r := range requests {
		fmt.Fprintf(&b, "(res: %v, q: %d), ", p.allocated.names[r.resource], r.amount)
	}
	b.WriteByte(']')
	return b.String()
}
