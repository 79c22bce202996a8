package admit

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// entry is a pod of the input or of an earlier run about which a decision is made.
type entry struct {
	pod      *v1.Pod
	row      int // in the input, -1 for a pod of an earlier run only
	priority int32
	qos      v1.PodQOSClass
	requests []request
	ports    []HostPort
	claims   []types.NamespacedName // that only one pod may use
	holds    bool                   // its requests count as used
	running  bool                   // was started by an earlier run
	earlier  *v1.Pod                // that run's pod, if this one is from the input
	fixed    bool                   // another run is about to start it
	rank     int                    // position in the order of victims
	others   []*entry               // of the same namespace and name, in order
	old      *entry                 // that of them which this one replaces, and which stays if this one is rejected
	by       *entry                 // the pod that preempts this one
	lacked   v1.ResourceName        // the first resource that it lacks otherwise, "" for none
	reasons  []Reason
	lasting  bool  // what it holds is never given back
	foreign  bool  // it is of another run, and nobody here knows when it ends
	ends     bool  // another run that goes on has admitted it, and it can end
	seat     int   // its place in the order in which a queue admits pods
	wait     *Wait // for what it waits, in the plan of a run with a queue
}

// planner holds the state of one decision.
type planner struct {
	node      *v1.Node
	o         Options
	allocated *allocated
	ports     portTable
	claims    claimTable
	input     []*entry
	earlier   []*entry // pods of earlier runs that the input does not hold unchanged, in order
	pruned    []*entry
	sockets   []Listener // that belong to none of the running pods
	optimal   bool
}

// Decide says which pods may run on the node next to those that already run, and which of
// those have to be stopped for them. It is deterministic, does not depend on the order of
// running, and changes none of its arguments. An admission never overcommits the node.
//
// A running pod that has ended uses no resources, unless containers of it still run. One with
// the UID of an input pod is that pod, unchanged, unless it has failed and so is run again; one
// that only has its namespace and name is replaced by it, and its resources count as free if the
// new one is admitted. Otherwise the old one stays.
//
// Of the pods with the namespace and name of an input pod, the plan leaves one at most, whatever was
// there: the input pod, unless it is rejected or preempted, or else one old one, rather one that
// runs, and of several the youngest. That includes pods that another run is about to start: the last
// plan decides. It holds for what is among running and Options.Reserved; so whoever plans must not
// start pods of its own plan before this one meanwhile. Pods of other names are left alone, unless
// they are preempted or pruned.
func Decide(node *v1.Node, running, pods []*v1.Pod, o Options) Plan {
	stays := map[int][]Reason{} // of rejected pods by row: the pods that they would replace stay
	for {
		p := newPlanner(node, running, pods, o)
		p.admitAll(stays)
		again := false
		for _, e := range p.input {
			if e.old != nil && len(e.reasons) > 0 && stays[e.row] == nil {
				stays[e.row] = e.reasons
				again = true
			}
		}
		if !again {
			plan := p.plan()
			if o.Queue {
				plan.Queue = p.newQueue()
			}
			return plan
		}
	}
}

// newPlanner works out what each pod requests and which pods replace which.
func newPlanner(node *v1.Node, running, pods []*v1.Pod, o Options) *planner {
	p := &planner{node: node, o: o, ports: portTable{}, claims: claimTable{}, optimal: true}
	requests := make([]v1.ResourceList, 0, len(pods)+len(running))
	for row, pod := range pods {
		p.input = append(p.input, p.newEntry(pod, row))
		requests = append(requests, Requests(pod))
	}
	p.match(p.present(running, o.Reserved))
	p.sockets = p.assignSockets()
	for _, e := range p.earlier {
		requests = append(requests, Requests(e.pod))
	}
	p.allocated = newAllocated(node, requests)
	for i, e := range slices.Concat(p.input, p.earlier) {
		e.requests = p.allocated.requests(requests[i])
	}
	return p
}

func (p *planner) newEntry(pod *v1.Pod, row int) *entry {
	return &entry{pod: pod, row: row, priority: Priority(pod), qos: podspec.QOS(pod), ports: hostPorts(pod), claims: p.o.onePodClaims(pod), lasting: podspec.NeverEnds(pod)}
}

// byAge orders pods of earlier runs: the oldest first, then by namespace, name and UID.
func byAge(a, b *v1.Pod) int {
	started := func(p *v1.Pod) int64 {
		if p.Status.StartTime == nil {
			return 0
		}
		return p.Status.StartTime.UnixNano()
	}
	return cmp.Or(
		cmp.Compare(started(a), started(b)),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.UID, b.UID),
	)
}

// present returns the pods that use the node: the running ones by age, then the reserved ones
// that do not run yet.
func (p *planner) present(running, reserved []*v1.Pod) []*entry {
	seen := map[types.UID]bool{}
	all := make([]*entry, 0, len(running)+len(reserved))
	for _, pod := range slices.SortedStableFunc(slices.Values(running), byAge) {
		seen[pod.UID] = true
		all = append(all, p.newEntry(pod, -1))
	}
	for _, pod := range slices.SortedStableFunc(slices.Values(reserved), byAge) {
		if !seen[pod.UID] {
			seen[pod.UID] = true
			e := p.newEntry(pod, -1)
			e.fixed = true
			all = append(all, e)
		}
	}
	return all
}

// match finds the input pods that already run and those that replace a pod. All other present
// pods, and those that are replaced, are pods of earlier runs.
func (p *planner) match(present []*entry) {
	uids := map[types.UID]*entry{}
	names := map[types.NamespacedName]*entry{}
	for _, e := range slices.Backward(p.input) {
		uids[e.pod.UID] = e
		names[podspec.NameOf(e.pod)] = e
	}
	delete(uids, "")
	for rank, e := range present {
		holds := e.fixed || !podspec.Inactive(e.pod.Status)
		if in := uids[e.pod.UID]; in != nil && !p.isRunAgain(e) {
			in.running, in.earlier, in.fixed, in.holds, in.rank = true, e.pod, e.fixed, holds, rank
			continue
		}
		e.running, e.holds, e.rank, e.foreign = true, holds, rank, true
		p.earlier = append(p.earlier, e)
		// The name of a pod with a damaged record is not known.
		if n := cmp.Or(names[podspec.NameOf(e.pod)], uids[e.pod.UID]); n != nil {
			n.others = append(n.others, e)
		} else if p.o.Prune != nil && !e.fixed && p.o.Prune(e.pod) {
			e.holds = false
			p.pruned = append(p.pruned, e)
		}
	}
	for _, e := range p.input {
		e.supersede()
	}
}

// supersede chooses the one pod of the same name that this one replaces, if it does not run already.
// The others are stopped whatever becomes of this one, and so hold nothing.
func (e *entry) supersede() {
	for _, o := range e.others {
		if !e.running && (e.old == nil || o.standing() >= e.old.standing()) {
			e.old = o
		}
	}
	for _, o := range e.others {
		o.holds = o.holds && o == e.old
	}
}

// standing orders the pods of one name: one that has ended, one that does not run yet, one that runs.
func (e *entry) standing() int {
	switch {
	case !e.holds:
		return 0
	case e.fixed:
		return 1
	}
	return 2
}

// isRunAgain says whether the pod of an earlier run is run again if the input has it.
func (p *planner) isRunAgain(e *entry) bool {
	if p.o.Once != nil && p.o.Once(e.pod) {
		return false
	}
	st := e.pod.Status
	if !podspec.Ended(st.Phase) {
		return !e.fixed && p.o.Recreate != nil && p.o.Recreate(e.pod)
	}
	failed := st.Phase == v1.PodFailed && st.Reason != podspec.ReasonFailureIgnored
	return !e.fixed && (failed || p.o.Rerun)
}

// admitAll decides on every input pod in the order asked for. The resources of replaced pods
// count as free from the beginning, except those of pods that are known to stay.
func (p *planner) admitAll(stays map[int][]Reason) {
	for _, e := range p.input {
		if e.old != nil {
			e.old.holds = e.old.holds && stays[e.row] != nil
		}
	}
	for _, e := range p.holding() {
		p.hold(e)
	}
	p.ports.addListening(p.sockets, slices.DeleteFunc(slices.Concat(p.input, p.earlier), func(e *entry) bool {
		return !e.running || podspec.Inactive(e.pod.Status)
	}))
	var queue []*entry
	for i, e := range p.inOrder() {
		if e.running {
			continue
		}
		e.rank = len(p.input) + len(p.earlier) + i
		switch rejected := stays[e.row]; {
		case p.o.Queue && rejected != nil:
			e.reasons = rejected
		case p.o.Queue && !Critical(e.pod):
			queue = append(queue, e)
		default:
			if p.admit(e); p.o.Queue && len(e.reasons) > 0 {
				queue = append(queue, e)
			}
		}
	}
	p.reprieve()
	p.enqueue(p.dependenciesFirst(queue))
}

// inOrder returns the input pods in the order in which they ask to be admitted. With a queue the critical ones
// always come first: what they would preempt has not started.
func (p *planner) inOrder() []*entry {
	all := slices.Clone(p.input)
	slices.SortStableFunc(all, func(a, b *entry) int {
		if p.o.Order == ByManifest && !(p.o.Queue && (Critical(a.pod) || Critical(b.pod))) {
			return 0
		}
		return cmp.Compare(b.priority, a.priority)
	})
	return all
}

// holding returns the pods whose requests count as used.
func (p *planner) holding() []*entry {
	return slices.DeleteFunc(slices.Concat(p.input, p.earlier), func(e *entry) bool { return !e.holds })
}

// admit decides on one pod.
func (p *planner) admit(e *entry) {
	stayed := e.old != nil && e.old.holds
	if stayed {
		p.drop(e.old)
	}
	if e.reasons = p.rejection(e); len(e.reasons) == 0 {
		p.hold(e)
		if e.old != nil {
			e.old.by = nil // it goes because it is replaced
		}
		return
	}
	if stayed {
		p.hold(e.old)
	}
}

// hold counts the pod's requests, ports and claims as used.
func (p *planner) hold(e *entry) {
	e.holds = true
	p.allocated.add(e.requests)
	p.ports.add(e)
	p.claims.add(e)
}

// drop counts what the pods hold as free.
func (p *planner) drop(entries ...*entry) {
	for _, e := range entries {
		e.holds = false
		p.ports.remove(e)
		p.claims.remove(e)
	}
	p.allocated.recount(p.holding())
}
