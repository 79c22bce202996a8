package admit

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// ReasonQueued is the reason of a pod that waits in a Queue.
const ReasonQueued = "Queued"

// Queue has the pods of a run that wait until others of the run have ended and given back what they
// had: requests, host ports, claims. It is pure, like the rest of the package, and not safe for
// concurrent use.
//
// Pods wait in the order in which they are admitted: critical ones, then by priority, then as in the
// input, or by the input alone (ByManifest). The first one that waits for pods of the run is the head.
// A pod starts when it fits into what is free, with three exceptions:
//
//   - One behind the head must also leave free what the head requests, of every resource that it
//     requests itself. So it uses nothing that the head lacks. Since what is free only grows until
//     then, apart from other passers, the head starts when it would have started without the passers,
//     whenever these end.
//   - One that never ends, because a container is always restarted, keeps what it gets. It passes others
//     only if each of those before it still fits beside it, and beside what else is kept for good.
//   - One that waits for pods of other runs keeps none waiting: nobody here knows when they end.
//
// A pod is rejected as soon as it does not fit beside the pods that keep what they have, those that
// wait before it included; and when it waits for pods of other runs alone, since no pod of this run
// that ends has anything left to give back. That does not hold for a run that goes on and has lost what its pods
// have given back to another run that goes on: then it waits for the pods of that run that can end.
type Queue struct {
	p       *planner
	pods    map[types.UID]*entry // that may be added, or have something
	waiting []*entry             // by seat
	held    []*entry             // pods of the run that have what they request
	foreign []*entry             // pods of others that have
	adopted []*entry             // that another run has started while they waited here
	dropped []*entry             // that were rejected, with their reasons
	lost    map[*entry]bool      // of which another run has another version
	head    *entry               // of the last decision, nil for none
	// least is the smallest request of any pod that waits, by resource, and at most that. It is nil if the next
	// decision has to look at every pod: pods were added, or others keep for good what they have.
	least []int64
}

// Present are the pods of a machine: those that run, and those that other runs have admitted
// (Options.Reserved).
type Present struct{ Running, Reserved []*v1.Pod }

// queueOf returns a queue of the pods that have something.
func (p *planner) queueOf() *Queue {
	q := &Queue{p: p, pods: map[types.UID]*entry{}, lost: map[*entry]bool{}}
	for _, e := range p.holding() {
		if e.foreign {
			q.foreign = append(q.foreign, e)
		} else {
			q.held = append(q.held, e)
		}
	}
	return q
}

// enqueue admits those of the pods that can start at once, in their order. It rejects those that can never
// start. The others wait.
func (p *planner) enqueue(pods []*entry) {
	if len(pods) == 0 {
		return
	}
	q := p.queueOf()
	var never []*entry
	for i, e := range pods {
		e.seat = i
		if p.fitsNowhere(e) {
			never = append(never, e)
			continue
		}
		e.reasons = nil
		q.waiting = append(q.waiting, e)
	}
	q.next()
	if q.stuck() {
		q.giveUp()
	}
	for _, e := range never {
		if len(e.reasons) == 0 {
			e.reasons = p.rejection(e)
		}
	}
	for _, e := range q.waiting {
		w := q.wait(e)
		e.wait = &w
	}
}

// fitsNowhere says whether the pod would be rejected if there were no other pod.
func (p *planner) fitsNowhere(e *entry) bool {
	if len(p.early(e))+len(p.placement(e.pod))+len(p.late(e.pod)) > 0 {
		return true
	}
	tooBig := func(r request) bool { return r.amount > p.allocated.capacity[r.resource] }
	return slices.ContainsFunc(e.requests, tooBig) ||
		slices.ContainsFunc(p.ports.conflicts(e.ports), func(h holder) bool { return h.by == nil })
}

// newQueue returns the queue of a run of the plan.
func (p *planner) newQueue() *Queue {
	var started []*entry
	for _, e := range p.input {
		if !e.running && e.holds {
			started = append(started, e)
		}
	}
	p.drop(started...)
	q := p.queueOf()
	for i, e := range p.inOrder() {
		e.seat = i // other than in the plan, which does not know when a pod has what it depends on
		if len(e.reasons) == 0 && e.by == nil {
			q.pods[e.pod.UID] = e
		}
	}
	return q
}

// Add has a pod wait that the plan has admitted or queued.
func (q *Queue) Add(pod *v1.Pod) {
	if e := q.pods[pod.UID]; e != nil && !e.holds && !slices.Contains(q.waiting, e) {
		q.insert(e)
		q.least = nil
	}
}

func (q *Queue) insert(e *entry) {
	at, _ := slices.BinarySearchFunc(q.waiting, e, bySeat)
	q.waiting = slices.Insert(q.waiting, at, e)
}

func bySeat(a, b *entry) int { return cmp.Compare(a.seat, b.seat) }

// Remove takes out a pod that has ended: what it had is free, and it waits no more.
func (q *Queue) Remove(pod *v1.Pod) {
	if e := q.pods[pod.UID]; e != nil {
		q.waiting = without(q.waiting, e)
		q.release(e)
	}
}

// Return has a pod wait again that Next has returned, and that was not started.
func (q *Queue) Return(pod *v1.Pod) {
	if e := q.pods[pod.UID]; e != nil && e.holds {
		q.release(e)
		q.insert(e)
	}
}

// Retain says that the pod keeps for good what it has.
func (q *Queue) Retain(pod *v1.Pod) {
	if e := q.pods[pod.UID]; e != nil {
		e.lasting = true
		q.least = nil
	}
}

// Next returns the pods that may start now, which have from now on what they request, and the
// decisions on those that never will. If it says that the queue is stuck, all others wait for pods of
// other runs alone.
func (q *Queue) Next() (start []*v1.Pod, rejected []Decision, stuck bool) {
	for _, e := range slices.Concat(q.adopted, q.next()) {
		start = append(start, e.pod)
	}
	q.adopted = nil
	return start, q.takeRejected(), q.stuck()
}

// GiveUp rejects all pods that wait.
func (q *Queue) GiveUp() []Decision {
	q.giveUp()
	return q.takeRejected()
}

// takeRejected returns the decisions on the pods that were rejected since the last time.
func (q *Queue) takeRejected() (decisions []Decision) {
	for _, e := range q.dropped {
		delete(q.pods, e.pod.UID)
		first := e.reasons[0]
		decisions = append(decisions, Decision{Pod: e.pod, Verdict: Rejected, Reason: first.Reason, Message: first.Message, Reasons: e.reasons})
	}
	q.dropped = nil
	return decisions
}

// Others says which pods are on the machine, of whatever run. One that waits here, and that another run
// has started, need not wait any more.
func (q *Queue) Others(present Present) {
	for _, e := range q.foreign {
		q.uncount(e)
	}
	q.foreign, q.least = nil, nil
	names := map[types.NamespacedName]*entry{}
	for _, e := range q.waiting {
		names[podspec.NameOf(e.pod)] = e
	}
	reserved := map[types.UID]bool{}
	for _, pod := range present.Reserved {
		reserved[pod.UID] = true
	}
	for _, e := range q.p.present(present.Running, present.Reserved) {
		own := q.pods[e.pod.UID]
		switch {
		case !e.fixed && podspec.Inactive(e.pod.Status), own != nil && own.holds:
			continue
		case own != nil && slices.Contains(q.waiting, own):
			q.waiting = without(q.waiting, own)
			q.hold(own)
			q.adopted = append(q.adopted, own)
			continue
		}
		e.ends = reserved[e.pod.UID] && !e.lasting
		e.running, e.foreign, e.requests = !e.fixed, true, q.p.allocated.requests(Requests(e.pod))
		if w := names[podspec.NameOf(e.pod)]; w != nil {
			q.lost[w] = true
		}
		q.hold(e)
	}
	q.recount()
}

// HasOthers says whether pods of other runs have something that the machine could give to pods that wait.
func (q *Queue) HasOthers() bool { return len(q.foreign) > 0 && len(q.waiting) > 0 }

// Head returns the first pod that waits, nil if none does.
func (q *Queue) Head() *v1.Pod {
	if len(q.waiting) == 0 {
		return nil
	}
	return q.waiting[0].pod
}

// hold gives the pod what it requests.
func (q *Queue) hold(e *entry) {
	q.p.hold(e)
	if e.foreign {
		q.foreign = append(q.foreign, e)
	} else {
		q.held = append(q.held, e)
	}
}

// release frees what the pod has.
func (q *Queue) release(e *entry) {
	if e.holds {
		q.held = without(q.held, e)
		q.uncount(e)
		q.recount()
	}
}

// uncount frees what the pod has, except for its requests.
func (q *Queue) uncount(e *entry) {
	e.holds = false
	q.p.ports.remove(e)
	q.p.claims.remove(e)
}

func (q *Queue) recount() { q.p.allocated.recount(slices.Concat(q.held, q.foreign)) }

func without(all []*entry, e *entry) []*entry {
	return slices.DeleteFunc(all, func(other *entry) bool { return other == e })
}
