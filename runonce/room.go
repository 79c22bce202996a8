package runonce

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
)

// lookInterval is how often the run looks whether pods of other runs have ended, while some of its own wait.
const lookInterval = 5 * time.Second

// room is what the pods of a run share that has pods waiting for room: it carries out what the queue decides. Its
// methods do nothing if it is nil.
type room struct {
	r    *run
	kick chan struct{} // gets a value when the queue has changed

	mu      sync.Mutex
	queue   *admit.Queue
	booked  map[types.UID]bool // by the plan
	tenants map[types.UID]*tenant
	look    bool    // at the pods of other runs, before anything else is admitted
	head    *v1.Pod // that has been told that it is the next one
	warned  bool
}

// tenant is the gate of a pod in a run in which pods wait for room. It opens when the queue admits the pod, which
// has its room from then on until it has ended for good: while it is retried and restarted, too.
type tenant struct {
	room *room
	p    *pod

	// Guarded by the lock of the room:
	asked    bool
	admitted bool
	since    time.Time // when it has asked
	rejected *admit.Decision
}

func newRoom(r *run, plan admit.Plan) *room {
	m := &room{r: r, kick: make(chan struct{}, 1), queue: plan.Queue, booked: map[types.UID]bool{}, tenants: map[types.UID]*tenant{}}
	for _, pod := range plan.Admitted() {
		m.booked[pod.UID] = true
	}
	return m
}

// join gives the pods their gates, which come after all others, and opens those for which the plan has room.
func (m *room) join(pods []*pod) {
	if m == nil {
		return
	}
	for _, p := range pods {
		p.tenant = &tenant{room: m, p: p, admitted: p.stage == adopted}
		p.gates = append(p.gates, p.tenant)
		m.tenants[p.pod.UID] = p.tenant
	}
	for _, p := range pods {
		p.gates.open()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	unbooked, _ := m.startable()
	for _, pod := range unbooked {
		m.queue.Return(pod) // until work books it
	}
}

// begin admits pods until the returned function is called.
func (m *room) begin(ctx context.Context) (end func()) {
	if m == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { m.work(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// work admits pods whenever the queue has changed, and when pods of other runs may have ended.
func (m *room) work(ctx context.Context) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for look := false; ; {
		if err := m.fill(ctx, look); err != nil && ctx.Err() == nil && !m.warned {
			m.warned = true
			m.r.o.Logger.WarnContext(ctx, "could not admit the pods that wait; trying again", "error", err)
		}
		select {
		case <-m.kick:
			look = false
		case <-ticker.C:
			look = m.hasOthers()
		case <-ctx.Done():
			return
		}
	}
}

func (m *room) hasOthers() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queue.HasOthers()
}

func (m *room) changed() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// fill admits what fits now.
func (m *room) fill(ctx context.Context, look bool) error {
	m.mu.Lock()
	unbooked, stuck := m.startable()
	look = look || stuck || m.look
	m.mu.Unlock()
	if len(unbooked) == 0 && !look {
		return nil
	}
	var admitted []*v1.Pod
	err := m.r.o.Book(ctx, look, func(present *admit.Present) []*v1.Pod {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.look = false
		if admitted = unbooked; present != nil {
			for _, pod := range unbooked {
				m.queue.Return(pod)
			}
			m.queue.Others(*present)
			admitted, stuck = m.startable()
		}
		return admitted
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		for _, pod := range slices.Concat(unbooked, admitted) {
			m.queue.Return(pod) // and is tried again
		}
		return err
	}
	if stuck {
		m.reject(m.queue.GiveUp())
	}
	for _, pod := range admitted {
		m.open(pod)
	}
	m.warned = false
	return nil
}

// startable returns the pods that may start and are not booked yet, and says whether all others wait for
// pods of other runs. It opens the gates of those that are booked, and rejects those that have no chance.
func (m *room) startable() (unbooked []*v1.Pod, stuck bool) {
	start, rejected, stuck := m.queue.Next()
	m.reject(rejected)
	for _, pod := range start {
		if m.booked[pod.UID] {
			m.open(pod)
		} else {
			unbooked = append(unbooked, pod)
		}
	}
	m.tellHead()
	return unbooked, stuck
}

// open opens the gate of a pod.
func (m *room) open(pod *v1.Pod) {
	m.booked[pod.UID] = true
	if t := m.tenants[pod.UID]; t != nil {
		t.admitted = true
		t.p.wake()
	}
}

// reject has pods end that will not start.
func (m *room) reject(decisions []admit.Decision) {
	for _, d := range decisions {
		if t := m.tenants[d.Pod.UID]; t != nil {
			if waited := time.Since(t.since).Round(time.Second); waited > 0 {
				d.Message += fmt.Sprintf("; it has waited for %s", waited)
			}
			t.rejected = &d
			t.p.wake()
		}
	}
}

// tellHead has the pod that is the next one now say so.
func (m *room) tellHead() {
	head := m.queue.Head()
	if head == m.head {
		return
	}
	if m.head = head; head != nil && m.tenants[head.UID] != nil {
		m.tenants[head.UID].p.wake()
	}
}

func (t *tenant) open() bool {
	m := t.room
	m.mu.Lock()
	defer m.mu.Unlock()
	if !t.asked && !t.admitted {
		t.asked, t.since = true, time.Now()
		m.queue.Add(t.p.pod)
		m.changed()
	}
	return t.admitted
}

func (t *tenant) verdict() condition {
	t.room.mu.Lock()
	defer t.room.mu.Unlock()
	switch {
	case t.rejected != nil:
		return condition{outcome: Rejected, ended: true, reason: t.rejected.Reason, message: t.rejected.Message}
	case t.admitted || !t.asked:
		return condition{}
	}
	w := t.room.queue.Wait(t.p.pod)
	if w.Place == 0 {
		return condition{} // it is being booked
	}
	return condition{reason: ReasonQueued, message: w.Message, lacks: strings.Join(w.Lacks, ", ")}
}

// changed gives back what a pod has had that has ended, once it is cleaned up. One that goes on nevertheless keeps it.
func (t *tenant) changed(c condition) {
	if !c.ended || !t.p.cleaned {
		return
	}
	m := t.room
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.reason == reasonStopped || t.p.preemptor != nil:
		m.queue.Remove(t.p.pod)
		m.look = true // it may still be stopping
	case !t.admitted || podspec.Inactive(t.p.status):
		m.queue.Remove(t.p.pod)
	default:
		m.queue.Retain(t.p.pod)
	}
	m.changed()
}

// vacate ends a pod for good that this run has started and given up, so that it needs no room: without a queue it
// would be left as it is. Later runs count it as failed as well.
func (t *tenant) vacate(ctx context.Context, c condition) {
	if t == nil || c.outcome != Failed || c.reason == reasonStopped {
		return
	}
	p := t.p
	if !p.begun() || p.preemptor != nil || podspec.Ended(p.status.Phase) {
		return
	}
	err := p.r.rt.Fail(ctx, p.pod, c.reason, c.message)
	if err == nil {
		err = p.refresh(ctx)
	}
	if err != nil {
		p.warn(ctx, "could not end the failed pod, which keeps what others wait for", err)
	}
}
