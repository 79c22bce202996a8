package admit

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// What the kubelet says of victims (pkg/kubelet/preemption).
const (
	reasonPreempting  = "Preempting"
	messagePreempting = "Preempted in order to admit critical pod"
)

// classes are the QoS classes as the search orders them.
var classes = map[v1.PodQOSClass]qosClass{
	v1.PodQOSBestEffort: bestEffort,
	v1.PodQOSBurstable:  burstable,
	v1.PodQOSGuaranteed: guaranteed,
}

// preemptable says whether the pod may be preempted for another one.
func (e *entry) preemptable(by *entry) bool { return e.priority < by.priority && !e.fixed }

// preempt chooses the victims of the pod, which have lower priorities: all blockers, and the
// best set of others that frees what is short. It returns what no set could free; then it
// has changed nothing.
func (p *planner) preempt(e *entry, short []request, blockers []holder) []request {
	if len(short)+len(blockers) == 0 {
		return nil
	}
	candidates := slices.DeleteFunc(p.holding(), func(c *entry) bool { return !c.preemptable(e) })
	slices.SortFunc(candidates, func(a, b *entry) int { return cmp.Compare(a.rank, b.rank) })
	solution, ok := solve(shortageOf(candidates, short, blockers))
	if !ok {
		return unmet(short, candidates)
	}
	victims := make([]*entry, 0, len(solution.victims))
	for _, i := range solution.victims {
		victims = append(victims, candidates[i])
	}
	p.drop(victims...)
	if left := p.allocated.insufficient(e.requests); len(left) > 0 {
		// Only sums beyond an int64 get here: they cannot be counted exactly.
		for _, v := range victims {
			p.hold(v)
		}
		return left
	}
	lacked := v1.ResourceName("")
	if len(short) > 0 {
		lacked = p.allocated.names[short[0].resource]
	}
	for _, v := range victims {
		v.by, v.lacked = e, lacked
	}
	p.optimal = p.optimal && solution.optimal
	return nil
}

// shortageOf states which of the candidates may be preempted for what is short, and which must be.
func shortageOf(candidates []*entry, short []request, blockers []holder) shortage {
	needs := []request{{resource: memoryIndex}, {resource: cpuIndex}}
	for _, r := range short {
		switch r.resource {
		case memoryIndex:
			needs[0] = r
		case cpuIndex:
			needs[1] = r
		default:
			needs = append(needs, r)
		}
	}
	var s shortage
	for _, n := range needs {
		s.need = append(s.need, n.amount)
	}
	for _, c := range candidates {
		pod := potentialVictim{
			priority: c.priority,
			class:    classes[c.qos],
			forced:   slices.ContainsFunc(blockers, func(h holder) bool { return h.by == c }),
		}
		for _, n := range needs {
			pod.requests = append(pod.requests, c.requested(n.resource))
		}
		s.pods = append(s.pods, pod)
	}
	return s
}

// unmet returns what would still be missing if all candidates were preempted.
func unmet(short []request, candidates []*entry) []request {
	var left []request
	for _, r := range short {
		for _, c := range candidates {
			r.amount -= min(r.amount, c.requested(r.resource))
		}
		if r.amount > 0 {
			left = append(left, r)
		}
	}
	return left
}

// reprieve undoes the preemption of pods that fit after all: because a later pod had more
// victims, or because the pod that preempted them was preempted itself.
func (p *planner) reprieve() {
	victims := slices.DeleteFunc(slices.Concat(p.input, p.earlier), func(e *entry) bool { return e.by == nil })
	slices.SortFunc(victims, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.rank, b.rank))
	})
	for _, v := range victims {
		if len(p.allocated.insufficient(v.requests)) == 0 && len(p.ports.conflicts(v.ports))+len(p.claims.conflicts(v)) == 0 {
			v.by = nil
			p.hold(v)
		}
	}
	for _, v := range victims {
		for v.by != nil && v.by.by != nil {
			v.by = v.by.by
		}
	}
}
