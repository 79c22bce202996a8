package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit/check"
	"github.com/runonce/runonce/admit/preempt"
)

// What the kubelet says of victims, and of critical pods for which it finds none
// (pkg/kubelet/preemption).
const (
	reasonUnexpected  = "UnexpectedAdmissionError"
	reasonPreempting  = "Preempting"
	messagePreempting = "Preempted in order to admit critical pod"
	reasonConflict    = "Conflict" // the API server's word (metav1.StatusReasonConflict)
	messageConflict   = "another run is about to start a pod of this namespace and name with other content"
)

// refusal returns the grounds against the pod, the one to report first; none when it
// fits, if need be after preempting others.
func (p *planner) refusal(e *entry) []Reason {
	subject := check.Subject{Pod: e.pod, QOS: e.qos, Critical: Critical(e.pod)}
	limits := check.Options{
		UnsafeSysctls: p.o.AllowUnsafeSysctls, AppArmor: p.o.AppArmor, RuntimeHandlers: p.o.RuntimeHandlers,
		Unable: p.o.Unable[e.pod.UID],
	}
	early := spelled(check.Early(subject, p.node, limits))
	if e.rival != nil {
		early = append(early, Reason{reasonConflict, messageConflict})
	}
	place := spelled(check.Place(subject, p.node))
	late := spelled(check.Late(subject, p.node, limits))
	short := p.ledger.shortage(e.demands)
	blockers, users := p.ports.conflicts(e.ports), p.claims.conflicts(e)

	lack := make([]Reason, 0, len(short))
	for _, d := range short {
		i := d.resource
		lack = append(lack, insufficient(p.ledger.names[i], p.requested(e, i), p.ledger.used[i], p.ledger.capacity[i]))
	}
	var ports []Reason
	if len(blockers) > 0 {
		ports = append(ports, Reason{"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"})
	}
	if len(users) > 0 {
		ports = append(ports, Reason{"VolumeRestrictions", "Predicate VolumeRestrictions failed: " + messageOnePod})
		blockers = append(blockers, users...)
	}
	if p.elsewhere(e.pod) {
		place = append(place, Reason{"VolumeBinding", "Predicate VolumeBinding failed: " + messageAffinity})
	}
	late = append(late, p.o.nfs(e.pod)...)
	if !Critical(e.pod) {
		return slices.Concat(early, lack, place, ports, late)
	}
	// The kubelet does not name a critical pod's lack of resources beside other grounds,
	// since preemption is to make up for it.
	if other := slices.Concat(early, place, late); len(other) > 0 || !yields(e, blockers) {
		return slices.Concat(early, place, ports, late, lack)
	}
	if len(lack)+len(ports) == 0 {
		return nil
	}
	left := p.preempt(e, short, blockers)
	if len(left) == 0 {
		return nil
	}
	message := "Unexpected error while attempting to recover from admission failure: preemption: " +
		"error finding a set of pods to preempt: no set of running pods found to reclaim resources: " + p.spell(left)
	return slices.Concat([]Reason{{reasonUnexpected, message}}, lack, ports)
}

// spelled returns the reasons in this package's words.
func spelled(reasons []check.Reason) []Reason {
	all := make([]Reason, 0, len(reasons))
	for _, r := range reasons {
		all = append(all, Reason(r))
	}
	return all
}

// insufficient returns a resource that the pod asks more of than is left, in the
// kubelet's words.
func insufficient(name v1.ResourceName, requested, used, capacity int64) Reason {
	return Reason{
		Reason: "OutOf" + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, requested, used, capacity),
	}
}

// requested returns how much the pod asks of a resource.
func (p *planner) requested(e *entry, index int) int64 {
	for _, d := range e.demands {
		if d.resource == index {
			return d.amount
		}
	}
	return 0
}

// yields says whether all who hold the pod's ports and claims may be preempted for it.
func yields(e *entry, blockers []holder) bool {
	return !slices.ContainsFunc(blockers, func(h holder) bool { return h.by == nil || !h.by.preemptable(e) })
}

// preemptable says whether the pod may have to go for another one.
func (e *entry) preemptable(by *entry) bool { return e.priority < by.priority && !e.fixed }

// spell writes requirements as the kubelet does (admissionRequirementList.toString).
func (p *planner) spell(needs []demand) string {
	var b strings.Builder
	b.WriteByte('[')
	for _, d := range needs {
		fmt.Fprintf(&b, "(res: %v, q: %d), ", p.ledger.names[d.resource], d.amount)
	}
	b.WriteByte(']')
	return b.String()
}

// preempt makes room for the pod by taking the smallest set of pods of lower priority. It
// returns what no set could free, and changes nothing then.
func (p *planner) preempt(e *entry, short []demand, blockers []holder) []demand {
	var candidates []*entry
	for _, c := range p.holding() {
		if c.preemptable(e) {
			candidates = append(candidates, c)
		}
	}
	slices.SortFunc(candidates, func(a, b *entry) int { return cmp.Compare(a.rank, b.rank) })
	resources, problem := []int{memoryIndex, cpuIndex}, preempt.Problem{Need: []int64{0, 0}}
	for _, d := range short {
		if i := slices.Index(resources, d.resource); i >= 0 {
			problem.Need[i] = d.amount
			continue
		}
		resources, problem.Need = append(resources, d.resource), append(problem.Need, d.amount)
	}
	for _, c := range candidates {
		problem.Pods = append(problem.Pods, p.offer(c, resources, blockers))
	}
	answer, ok := preempt.Solve(problem)
	if !ok {
		return p.unmet(short, candidates)
	}
	victims := make([]*entry, 0, len(answer.Victims))
	for _, i := range answer.Victims {
		victims = append(victims, candidates[i])
	}
	p.drop(victims...)
	if left := p.ledger.shortage(e.demands); len(left) > 0 {
		// Only sums beyond an int64 come here: they cannot be counted exactly.
		for _, v := range victims {
			p.hold(v)
		}
		return left
	}
	for _, v := range victims {
		v.by = e
	}
	p.optimal = p.optimal && answer.Optimal
	return nil
}

// offer describes the pod as one that may be preempted.
func (p *planner) offer(c *entry, resources []int, blockers []holder) preempt.Pod {
	offer := preempt.Pod{
		Priority: c.priority,
		Class:    preempt.BestEffort,
		Forced:   slices.ContainsFunc(blockers, func(h holder) bool { return h.by == c }),
	}
	switch c.qos {
	case v1.PodQOSGuaranteed:
		offer.Class = preempt.Guaranteed
	case v1.PodQOSBurstable:
		offer.Class = preempt.Burstable
	case v1.PodQOSBestEffort:
	}
	for _, i := range resources {
		offer.Requests = append(offer.Requests, p.requested(c, i))
	}
	return offer
}

// unmet returns what would still be missing if all candidates went.
func (p *planner) unmet(short []demand, candidates []*entry) []demand {
	var left []demand
	for _, d := range short {
		for _, c := range candidates {
			d.amount -= min(d.amount, p.requested(c, d.resource))
		}
		if d.amount > 0 {
			left = append(left, d)
		}
	}
	return left
}

// relent takes back the preemption of pods that have room after all: those of a pod that
// is preempted in turn, or beside victims of a later one.
func (p *planner) relent() {
	var victims []*entry
	for _, list := range [][]*entry{p.input, p.earlier} {
		for _, e := range list {
			if e.by != nil {
				victims = append(victims, e)
			}
		}
	}
	slices.SortFunc(victims, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.rank, b.rank))
	})
	for _, v := range victims {
		if len(p.ledger.shortage(v.demands)) == 0 && len(p.ports.conflicts(v.ports))+len(p.claims.conflicts(v)) == 0 {
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

// plan writes the decisions down.
func (p *planner) plan() Plan {
	plan := Plan{Node: p.node.DeepCopy(), Optimal: p.optimal, Used: p.ledger.list(p.ledger.used)}
	var stopped []*entry
	for _, e := range p.input {
		d := Decision{Pod: e.pod, Verdict: Admitted, Running: e.running}
		switch {
		case e.by != nil:
			d = PreemptedBy(e.pod, e.by.pod)
			d.Running = e.running
			if e.old != nil && !ended(e.old.pod) {
				e.old.by = e.by
				stopped = append(stopped, e.old)
			}
		case len(e.reasons) > 0:
			d.Verdict = Rejected
			d.Reasons = e.reasons
			d.Reason, d.Message = e.reasons[0].Reason, e.reasons[0].Message
		case e.old != nil:
			d.Replaces = e.old.pod
		}
		plan.Decisions = append(plan.Decisions, d)
	}
	for _, e := range p.earlier {
		if e.by != nil && !slices.Contains(stopped, e) {
			stopped = append(stopped, e)
		}
	}
	for _, e := range stopped {
		plan.Decisions = append(plan.Decisions, PreemptedBy(e.pod, e.by.pod))
	}
	for _, e := range p.pruned {
		plan.Decisions = append(plan.Decisions, Decision{Pod: e.pod, Verdict: Admitted, Running: true, Prune: true})
	}
	return plan
}
