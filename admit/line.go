package admit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/runonce/runonce/internal/podspec"
)

// line is one look at the pods that wait, in their order, which decides on each of them: see Queue.
type line struct {
	p       *planner
	lasting []int64 // requests of the pods of the run that keep what they have
	foreign []int64 // of the pods of others
	// Of the pods before the one that is looked at, which wait for pods of the run:
	kept    []int64 // the requests of those that will keep what they get
	largest []int64 // the largest request of one of the others
	wanted  crowd   // all of them
	keepers crowd   // those that will keep what they get
	head    *entry  // the first one
}

// crowd has the ports and claims of pods.
type crowd struct {
	ports  portTable
	claims claimTable
}

func newCrowd() crowd { return crowd{portTable{}, claimTable{}} }

func (c crowd) add(e *entry) {
	c.ports.add(e)
	c.claims.add(e)
}

// conflicts returns the pods that have ports or claims of the pod.
func (c crowd) conflicts(e *entry) []holder {
	if len(e.ports)+len(e.claims) == 0 {
		return nil
	}
	return slices.Concat(c.ports.conflicts(e.ports), c.claims.conflicts(e))
}

// next decides on the pods that wait, gives those that may start what they request and returns them. It sets the
// reasons of those that never will.
func (q *Queue) next() (started []*entry) {
	l := q.newLine()
	rest := q.waiting[:0]
	for i, e := range q.waiting {
		if l.full(q.least) {
			rest = append(rest, q.waiting[i:]...)
			break
		}
		switch {
		case q.lost[e]:
			q.reject(e, []Reason{{"Replaced", "another run has admitted another version of the pod"}})
		case !l.mayRun(e):
			q.reject(e, l.unfit(e, q.held, rest))
		case l.starts(e):
			q.hold(e)
			started = append(started, e)
			if e.lasting {
				add(l.lasting, e)
				q.least = nil
			}
		default:
			l.pass(e)
			rest = append(rest, e)
		}
	}
	clear(q.waiting[len(rest):])
	q.waiting, q.head = rest, l.head
	if q.least == nil {
		q.least = q.smallest()
	}
	return started
}

// smallest returns the smallest request of the pods that wait, by resource.
func (q *Queue) smallest() []int64 {
	var least []int64
	for _, e := range q.waiting {
		requests := make([]int64, len(q.p.allocated.names))
		add(requests, e)
		if least == nil {
			least = requests
		}
		for i, n := range requests {
			least[i] = min(least[i], n)
		}
	}
	return least
}

// full says whether no pod behind the head can start: none requests so little of a resource that there is enough
// left.
func (l *line) full(least []int64) bool {
	if l.head == nil {
		return false
	}
	for i, n := range least {
		if free := l.free(i, l.p.allocated.used); n > 0 && n > free-min(free, l.head.requested(i)) {
			return true
		}
	}
	return false
}

func (q *Queue) reject(e *entry, reasons []Reason) {
	e.reasons = reasons
	q.dropped = append(q.dropped, e)
}

func (q *Queue) newLine() *line {
	n := len(q.p.allocated.names)
	l := &line{
		p: q.p, lasting: make([]int64, n), foreign: make([]int64, n), kept: make([]int64, n), largest: make([]int64, n),
		wanted: newCrowd(), keepers: newCrowd(),
	}
	for _, e := range q.held {
		if e.lasting {
			add(l.lasting, e)
		}
	}
	for _, e := range q.foreign {
		add(l.foreign, e)
	}
	return l
}

// add adds the requests of a pod to a sum.
func add(to []int64, e *entry) {
	for _, r := range e.requests {
		to[r.resource] = sum(to[r.resource], r.amount)
	}
}

// leaves says whether the node has enough for the pod beside all of the sums.
func (l *line) leaves(e *entry, sums ...[]int64) bool {
	for _, r := range e.requests {
		if r.amount > l.free(r.resource, sums...) {
			return false
		}
	}
	return true
}

// free returns what the sums leave of a resource, which may be negative.
func (l *line) free(resource int, sums ...[]int64) int64 {
	var total int64
	for _, s := range sums {
		total = sum(total, s[resource])
	}
	return l.p.allocated.capacity[resource] - total
}

// holders returns the pods that have ports or claims of the pod.
func (l *line) holders(e *entry) []holder { return crowd{l.p.ports, l.p.claims}.conflicts(e) }

// mayRun says whether the pod fits beside those that keep what they have, or will before it.
func (l *line) mayRun(e *entry) bool {
	return l.leaves(e, l.lasting, l.kept) && len(l.keepers.conflicts(e)) == 0 && !slices.ContainsFunc(l.holders(e), keepsOn)
}

// keepsOn says whether a pod of the run, or a program, keeps the port or claim for good.
func keepsOn(h holder) bool { return h.by == nil || h.by.lasting && !h.by.foreign }

// waitsForOthers says whether a pod that may run does not fit beside the pods of other runs.
func (l *line) waitsForOthers(e *entry) bool {
	return !l.leaves(e, l.lasting, l.kept, l.foreign) || slices.ContainsFunc(l.holders(e), func(h holder) bool { return h.by != nil && h.by.foreign })
}

// starts says whether a pod that may run starts now.
func (l *line) starts(e *entry) bool {
	if !l.leaves(e, l.p.allocated.used) || len(l.holders(e)) > 0 {
		return false
	}
	if l.head == nil {
		return true
	}
	if len(l.reserved(e)) > 0 || len(crowdOf(l.head).conflicts(e)) > 0 {
		return false
	}
	return !e.lasting || l.leaves(e, l.lasting, l.kept, l.foreign, l.largest) && len(l.wanted.conflicts(e)) == 0
}

// reserved returns the resources of which the pod would not leave enough for the head.
func (l *line) reserved(e *entry) (names []int) {
	for _, r := range e.requests {
		if free := l.free(r.resource, l.p.allocated.used); r.amount > free-min(free, l.head.requested(r.resource)) {
			names = append(names, r.resource)
		}
	}
	return names
}

// crowdOf returns the ports and claims of one pod.
func crowdOf(e *entry) crowd {
	c := newCrowd()
	c.add(e)
	return c
}

// pass goes on behind a pod that waits.
func (l *line) pass(e *entry) {
	if l.waitsForOthers(e) {
		return
	}
	if l.head == nil {
		l.head = e
	}
	l.wanted.add(e)
	if e.lasting {
		add(l.kept, e)
		l.keepers.add(e)
		return
	}
	for _, r := range e.requests {
		l.largest[r.resource] = max(l.largest[r.resource], r.amount)
	}
}

// unfit returns why the pod may not run, and names the pods that keep what it would need: those that have it,
// and those of the run that wait before it.
func (l *line) unfit(e *entry, held, before []*entry) []Reason {
	used := make([]int64, len(l.lasting))
	var short []request
	for i := range used {
		used[i] = sum(l.lasting[i], l.kept[i])
	}
	for _, r := range e.requests {
		if r.amount > l.free(r.resource, used) {
			short = append(short, r)
		}
	}
	ports := append(slices.DeleteFunc(l.p.ports.conflicts(e.ports), func(h holder) bool { return !keepsOn(h) }), l.keepers.ports.conflicts(e.ports)...)
	users := append(slices.DeleteFunc(l.p.claims.conflicts(e), func(h holder) bool { return !keepsOn(h) }), l.keepers.claims.conflicts(e)...)
	reasons := slices.Concat(l.p.outOf(e, short, used), inConflict(ports, users))
	var keepers []string
	for _, k := range slices.Concat(held, before) {
		uses := func(r request) bool { return k.requested(r.resource) > 0 }
		has := func(h holder) bool { return h.by == k }
		if k.lasting && (slices.ContainsFunc(short, uses) || slices.ContainsFunc(slices.Concat(ports, users), has)) {
			keepers = append(keepers, podspec.FullName(k.pod))
		}
	}
	if len(keepers) > 0 {
		reasons[0].Message += "; pods that do not end have it or get it first: " + some(keepers)
	}
	return reasons
}

// stuck says whether pods wait, and no pod of the run that ends has anything to give back, nor one of another run
// that goes on and has come meanwhile.
func (q *Queue) stuck() bool {
	return len(q.waiting) > 0 && !slices.ContainsFunc(q.held, func(e *entry) bool { return !e.lasting }) &&
		!slices.ContainsFunc(q.foreign, func(e *entry) bool { return e.ends })
}

// giveUp rejects all pods that wait.
func (q *Queue) giveUp() {
	names := make([]string, 0, len(q.foreign))
	for _, e := range q.foreign {
		names = append(names, podspec.FullName(e.pod))
	}
	for _, e := range q.waiting {
		short := q.p.allocated.insufficient(e.requests)
		reasons := slices.Concat(q.p.outOf(e, short, q.p.allocated.used), inConflict(q.p.ports.conflicts(e.ports), q.p.claims.conflicts(e)))
		if len(reasons) == 0 { // it would fit, and may not pass one before it
			reasons = []Reason{{ReasonQueued, q.wait(e).Message}}
		}
		if len(names) > 0 {
			reasons[0].Message += "; pods of other runs have it: " + some(names)
		}
		q.reject(e, reasons)
	}
	q.waiting, q.head = nil, nil
}

// some joins the first names and counts the others.
func some(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
