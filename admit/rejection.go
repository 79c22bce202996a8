package admit

import (
	"fmt"
	"slices"
	"strings"
)

// What the kubelet says of a critical pod for which it finds no victims
// (pkg/kubelet/preemption).
const (
	reasonUnexpected  = "UnexpectedAdmissionError"
	messageUnexpected = "Unexpected error while attempting to recover from admission failure: preemption: " +
		"error finding a set of pods to preempt: no set of running pods found to reclaim resources: "
)

// messageNoPorts is the scheduler's, as the kubelet wraps it. The ports follow.
const messageNoPorts = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"

// rejection returns why the pod is rejected, the most important reason first; nothing when it
// fits, or fits once the pods that it preempts are stopped.
func (p *planner) rejection(e *entry) []Reason {
	if p.o.Refused != nil {
		if reason, ok := p.o.Refused[e.pod.UID]; ok {
			return []Reason{reason}
		}
		return nil
	}
	early, placement, late := p.early(e), p.placement(e.pod), p.late(e.pod)
	short := p.allocated.insufficient(e.requests)
	resources := p.outOf(e, short, p.allocated.used)
	ports, users := p.ports.conflicts(e.ports), p.claims.conflicts(e)
	conflicts, blockers := inConflict(ports, users), slices.Concat(ports, users)
	if !Critical(e.pod) {
		return slices.Concat(early, resources, placement, conflicts, late)
	}
	// The kubelet names a critical pod's lack of resources after all other reasons, since
	// preemption is to make up for it.
	fixed := slices.ContainsFunc(blockers, func(h holder) bool { return h.by == nil || !h.by.preemptable(e) })
	if fixed || len(early)+len(placement)+len(late) > 0 {
		return slices.Concat(early, placement, conflicts, late, resources)
	}
	left := p.preempt(e, short, blockers)
	if len(left) == 0 {
		return nil
	}
	return slices.Concat([]Reason{{reasonUnexpected, messageUnexpected + p.list(left)}}, resources, conflicts)
}

// inConflict returns the reasons of a pod whose ports and claims others hold.
func inConflict(ports, users []holder) (reasons []Reason) {
	if len(ports) > 0 {
		reasons = append(reasons, Reason{"NodePorts", messageNoPorts + describe(ports)})
	}
	if len(users) > 0 {
		reasons = append(reasons, Reason{"VolumeRestrictions", "Predicate VolumeRestrictions failed: " + messageOnePod})
	}
	return reasons
}

// describe says which ports are in use, and by whom.
func describe(blockers []holder) string {
	var all []string
	for _, h := range blockers {
		if text := h.String(); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return ": " + strings.Join(all, ", ")
}

// outOf returns the kubelet's words for the resources of which too little is left.
func (p *planner) outOf(e *entry, short []request, used []int64) []Reason {
	reasons := make([]Reason, 0, len(short))
	for _, r := range short {
		name := p.allocated.names[r.resource]
		reasons = append(reasons, Reason{
			Reason: "OutOf" + string(name),
			Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				name, e.requested(r.resource), used[r.resource], p.allocated.capacity[r.resource]) + named(p.o.Others, name),
		})
	}
	return reasons
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
