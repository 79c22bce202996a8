package admit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// events is what happens to a queue: pods are added, or end. A decision follows each.
type event struct {
	add, end *v1.Pod
}

// replay has a queue of a plan in which nothing has been started.
type replay struct {
	q       *Queue
	added   map[types.UID]int // at which step
	started map[types.UID]int
	order   []*v1.Pod
	step    int
	stuck   bool
	dropped []Decision
}

func newReplay(w world) *replay {
	plan := Decide(w.node, w.running, w.pods, w.options)
	return &replay{q: plan.Queue, added: map[types.UID]int{}, started: map[types.UID]int{}}
}

func (r *replay) do(e event) {
	r.step++
	switch {
	case e.add != nil:
		r.added[e.add.UID] = r.step
		r.q.Add(e.add)
	case e.end != nil:
		r.q.Remove(e.end)
	}
	start, rejected, stuck := r.q.Next()
	r.stuck, r.dropped = stuck, append(r.dropped, rejected...)
	for _, p := range start {
		r.started[p.UID] = r.step
		r.order = append(r.order, p)
	}
}

// queueWorld returns pods that compete for a small node, of which some never end, and others that run
// already, of which some are of the input.
func queueWorld(rng *rand.Rand) world {
	w := world{node: node(fmt.Sprintf("cpu=%d,memory=%dMi,pods=%d,example.com/gpu=%d", 1+rng.IntN(4), 256*(1+rng.IntN(8)), 2+rng.IntN(6), rng.IntN(3)))}
	w.options.Queue = true
	if rng.IntN(2) == 0 {
		w.options.Order = ByManifest
	}
	for i := range 3 + rng.IntN(14) {
		p := randomPod(rng, fmt.Sprintf("p%d", i), func(p *v1.Pod) {
			if rng.IntN(4) > 0 {
				p.Spec.RestartPolicy = v1.RestartPolicyNever
			}
		})
		if rng.IntN(6) == 0 {
			running := p.DeepCopy()
			running.Status.Phase = v1.PodRunning
			w.running = append(w.running, running)
		}
		w.pods = append(w.pods, p)
	}
	return w
}

// history runs the queue of a world to its end, with pods that are added and end in random order.
func history(w world, rng *rand.Rand) (*replay, []event, string) {
	r := newReplay(w)
	var events []event
	var later []*v1.Pod
	do := func(e event) string {
		events = append(events, e)
		r.do(e)
		return r.wrong(w)
	}
	plan := Decide(w.node, w.running, w.pods, w.options)
	for _, d := range plan.Decisions[:len(w.pods)] {
		switch {
		case d.Running && d.Verdict == Admitted:
			r.order = append(r.order, d.Pod)
		case d.Runs() && rng.IntN(5) == 0:
			later = append(later, d.Pod)
		case d.Runs():
			if problem := do(event{add: d.Pod}); problem != "" {
				return r, events, problem
			}
		}
	}
	ended := map[types.UID]bool{}
	for {
		var running []*v1.Pod
		for _, p := range r.order {
			if !ended[p.UID] && !podspec.NeverEnds(p) {
				running = append(running, p)
			}
		}
		var e event
		switch {
		case len(later) > 0 && (len(running) == 0 || rng.IntN(3) == 0):
			e.add, later = later[0], later[1:]
		case len(running) > 0:
			e.end = running[rng.IntN(len(running))]
			ended[e.end.UID] = true
		case len(r.q.waiting) > 0 && !r.stuck:
			return r, events, fmt.Sprintf("%d pods wait for ever", len(r.q.waiting))
		default:
			return r, events, ""
		}
		if problem := do(e); problem != "" {
			return r, events, problem
		}
	}
}

// wrong says what is wrong with the queue.
func (r *replay) wrong(w world) string {
	held := podsOf(r.q.held)
	if problem := overcommitted(w.node, append(held, podsOf(r.q.foreign)...), held); problem != "" && len(w.running) == 0 {
		return problem
	}
	if len(r.q.waiting) > 0 && len(r.q.foreign) == 0 && r.stuck {
		return "stuck without pods of other runs"
	}
	for _, d := range r.dropped {
		if problem := r.madeUnfit(d); problem != "" {
			return problem
		}
	}
	r.dropped = nil
	return ""
}

// madeUnfit says which pod that came later has made the rejected one impossible.
func (r *replay) madeUnfit(d Decision) string {
	at := slices.IndexFunc(r.q.p.input, func(e *entry) bool { return e.pod == d.Pod })
	e := r.q.p.input[at]
	// What had started before the last one was added that comes first was right to start.
	known := r.added[e.pod.UID]
	for _, k := range slices.Concat(r.q.held, r.q.waiting) {
		if k.lasting && k.seat < e.seat {
			known = max(known, r.added[k.pod.UID])
		}
	}
	var keepers []*entry
	for _, k := range slices.Concat(r.q.held, r.q.waiting) {
		if k.lasting && (k.seat < e.seat || k.running || k.holds && r.started[k.pod.UID] < known) {
			keepers = append(keepers, k)
		}
	}
	used := slices.Clone(r.q.p.allocated.used)
	clear(used)
	c := newCrowd()
	for _, k := range keepers {
		add(used, k)
		c.add(k)
	}
	for _, q := range e.requests {
		if q.amount > r.q.p.allocated.capacity[q.resource]-used[q.resource] {
			return ""
		}
	}
	if len(c.conflicts(e)) > 0 {
		return ""
	}
	return fmt.Sprintf("%s was rejected because of a pod that came after it: %s", d.Pod.Name, d.Message)
}

func podsOf(entries []*entry) []*v1.Pod {
	var pods []*v1.Pod
	for _, e := range entries {
		pods = append(pods, e.pod)
	}
	return pods
}

// delayed says which head of the queue started later than it would have without those that passed it, if all
// other pods had ended as they did.
func delayed(w world, events []event) string {
	for at := range events {
		full := newReplay(w)
		for _, e := range events[:at+1] {
			full.do(e)
		}
		if full.q.head == nil {
			continue
		}
		head, seat := full.q.head.pod, full.q.head.seat
		alone := newReplay(w)
		for _, e := range events[:at+1] {
			alone.do(e)
		}
		for _, e := range slices.Clone(alone.q.waiting) {
			if e.pod.UID != head.UID {
				alone.q.Remove(e.pod)
			}
		}
		for _, e := range events[at+1:] {
			if e.add != nil && full.q.pods[e.add.UID] != nil && full.q.pods[e.add.UID].seat < seat {
				break // another one is the head now
			}
			full.do(e)
			if e.end != nil {
				if _, here := alone.started[e.end.UID]; here || alone.q.pods[e.end.UID].running {
					alone.do(e)
				}
			}
			_, first := alone.started[head.UID]
			if _, later := full.started[head.UID]; first && !later && full.q.pods[head.UID] != nil {
				return fmt.Sprintf("%s is delayed", head.Name)
			}
		}
	}
	return ""
}

// problemOfQueue runs the queue of a random world, and says what is wrong.
func problemOfQueue(rng *rand.Rand) string {
	w := queueWorld(rng)
	_, events, problem := history(w, rng)
	if problem != "" {
		return problem
	}
	return delayed(w, events)
}

// TestQueueProperties: whatever comes and ends in whatever order, a queue never overcommits the node, no
// pod waits for ever, no head starts later than it would have without the pods that pass it, and no pod is
// made impossible by one that comes after it.
func TestQueueProperties(t *testing.T) {
	t.Parallel()
	worlds := 4_000
	if testing.Short() {
		worlds = 1_000
	}
	rng := rand.New(rand.NewPCG(11, 12))
	for n := range worlds {
		if problem := problemOfQueue(rng); problem != "" {
			t.Fatalf("world %d: %s", n, problem)
		}
	}
}

func FuzzQueue(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, seed*7919)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		if problem := problemOfQueue(rand.New(rand.NewPCG(a, b))); problem != "" {
			t.Fatal(problem)
		}
	})
}
