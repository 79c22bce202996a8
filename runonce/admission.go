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

// admissions is what the pods of a run with a queue share. It carries out what the queue decides. The methods that a
// run calls do nothing if it is nil.
type admissions struct {
	r    *run
	kick chan struct{} // gets a value when the queue has changed

	mu       sync.Mutex
	queue    *admit.Queue
	reserved map[types.UID]bool // pods, by the plan and since
	byPod    map[types.UID]*admission
	look     bool    // at the pods of other runs, before anything else is admitted
	head     *v1.Pod // that has been told that it is the next one
	warned   bool
}

// admission is the gate of a pod in a run in which pods wait for room. It opens when the queue admits the pod, which
// has its room from then on until it has ended for good: while it is retried and restarted, too.
type admission struct {
	all *admissions
	p   *pod

	// Guarded by all.mu:
	asked    bool
	admitted bool
	since    time.Time // when it has asked
	rejected *admit.Decision
}

func newAdmissions(r *run, plan admit.Plan) *admissions {
	m := &admissions{r: r, kick: make(chan struct{}, 1), queue: plan.Queue, reserved: map[types.UID]bool{}, byPod: map[types.UID]*admission{}}
	for _, pod := range plan.Admitted() {
		m.reserved[pod.UID] = true
	}
	return m
}

// join gives the pods their gates, which come after all others, and opens those for which the plan has room.
func (m *admissions) join(pods []*pod) {
	if m == nil {
		return
	}
	for _, p := range pods {
		p.admission = &admission{all: m, p: p, admitted: p.stage == adopted}
		p.gates = append(p.gates, p.admission)
		m.byPod[p.pod.UID] = p.admission
	}
	for _, p := range pods {
		p.gates.open()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	unreserved, _ := m.startable()
	for _, pod := range unreserved {
		m.queue.Return(pod) // until work reserves its room
	}
}

// begin admits pods until the returned function is called.
func (m *admissions) begin(ctx context.Context) (end func()) {
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
func (m *admissions) work(ctx context.Context) {
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

func (m *admissions) hasOthers() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queue.HasOthers()
}

func (m *admissions) changed() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// fill admits what fits now.
func (m *admissions) fill(ctx context.Context, look bool) error {
	m.mu.Lock()
	unreserved, stuck := m.startable()
	look = look || stuck || m.look
	m.mu.Unlock()
	if len(unreserved) == 0 && !look {
		return nil
	}
	var admitted []*v1.Pod
	err := m.r.o.Reserve(ctx, look, func(present *admit.Present) []*v1.Pod {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.look = false
		if admitted = unreserved; present != nil {
			for _, pod := range unreserved {
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
		for _, pod := range slices.Concat(unreserved, admitted) {
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

// startable returns the pods that may start and are not reserved yet, and says whether all others wait for
// pods of other runs. It opens the gates of those that are reserved, and rejects those that have no chance.
func (m *admissions) startable() (unreserved []*v1.Pod, stuck bool) {
	start, rejected, stuck := m.queue.Next()
	m.reject(rejected)
	for _, pod := range start {
		if m.reserved[pod.UID] {
			m.open(pod)
		} else {
			unreserved = append(unreserved, pod)
		}
	}
	m.tellHead()
	return unreserved, stuck
}

// open opens the gate of a pod.
func (m *admissions) open(pod *v1.Pod) {
	m.reserved[pod.UID] = true
	if t := m.byPod[pod.UID]; t != nil {
		t.admitted = true
		t.p.wake()
	}
}

// reject has pods end that will not start.
func (m *admissions) reject(decisions []admit.Decision) {
	for _, d := range decisions {
		if t := m.byPod[d.Pod.UID]; t != nil {
			if waited := time.Since(t.since).Round(time.Second); waited > 0 {
				d.Message += fmt.Sprintf("; it has waited for %s", waited)
			}
			t.rejected = &d
			t.p.wake()
		}
	}
}

// tellHead has the pod that is the next one now say so.
func (m *admissions) tellHead() {
	head := m.queue.Head()
	if head == m.head {
		return
	}
	if m.head = head; head != nil && m.byPod[head.UID] != nil {
		m.byPod[head.UID].p.wake()
	}
}

func (a *admission) open() bool {
	m := a.all
	m.mu.Lock()
	defer m.mu.Unlock()
	if !a.asked && !a.admitted {
		a.asked, a.since = true, time.Now()
		m.queue.Add(a.p.pod)
		m.changed()
	}
	return a.admitted
}

func (a *admission) verdict() condition {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	switch {
	case a.rejected != nil:
		return condition{outcome: Rejected, ended: true, reason: a.rejected.Reason, message: a.rejected.Message}
	case a.admitted || !a.asked:
		return condition{}
	}
	w := a.all.queue.Wait(a.p.pod)
	if w.Place == 0 {
		return condition{} // its room is being reserved
	}
	return condition{reason: ReasonQueued, message: w.Message, lacks: strings.Join(w.Lacks, ", ")}
}

// changed gives back what a pod has had that has ended, once it is cleaned up. One that goes on nevertheless keeps it.
func (a *admission) changed(c condition) {
	if !c.ended || !a.p.cleaned {
		return
	}
	m := a.all
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c.reason == reasonStopped || a.p.preemptor != nil:
		m.queue.Remove(a.p.pod)
		m.look = true // it may still be stopping
	case !a.admitted || podspec.Inactive(a.p.status):
		m.queue.Remove(a.p.pod)
	default:
		m.queue.Retain(a.p.pod)
	}
	m.changed()
}

// endForGood ends a pod for good that this run has started and given up, so that it needs no room: without a queue it
// would be left as it is. Later runs count it as failed as well.
func (a *admission) endForGood(ctx context.Context, c condition) {
	if a == nil || c.outcome != Failed || c.reason == reasonStopped {
		return
	}
	p := a.p
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
