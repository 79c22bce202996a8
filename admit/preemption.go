package admit

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit/preempt"
)

// What the kubelet says of victims (pkg/kubelet/preemption).
const (
	reasonPreempting  = "Preempting"
	messagePreempting = "Preempted in order to admit critical pod"
)

// classes are the QoS classes as package preempt names them.
var classes = map[v1.PodQOSClass]preempt.Class{
	v1.PodQOSBestEffort: preempt.BestEffort,
	v1.PodQOSBurstable:  preempt.Burstable,
	v1.PodQOSGuaranteed: preempt.Guaranteed,
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
	solution, ok := preempt.Solve(problem(candidates, short, blockers))
	if !ok {
		return unmet(short, candidates)
	}
	victims := make([]*entry, 0, len(solution.Victims))
	for _, i := range solution.Victims {
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
	for _, v := range victims {
		v.by = e
	}
	p.optimal = p.optimal && solution.Optimal
	return nil
}

// problem states which of the candidates may be preempted for what is short, and which must be.
func problem(candidates []*entry, short []request, blockers []holder) preempt.Problem {
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
	var problem preempt.Problem
	for _, n := range needs {
		problem.Need = append(problem.Need, n.amount)
	}
	for _, c := range candidates {
		pod := preempt.Pod{
			Priority: c.priority,
			Class:    classes[c.qos],
			Forced:   slices.ContainsFunc(blockers, func(h holder) bool { return h.by == c }),
		}
		for _, n := range needs {
			pod.Requests = append(pod.Requests, c.requested(n.resource))
		}
		problem.Pods = append(problem.Pods, pod)
	}
	return problem
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
