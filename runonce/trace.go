package runonce

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PhaseWaiting is the phase of a pod that waits for others on which it depends.
const PhaseWaiting = "wait for dependencies"

// Trace records the steps of every pod's start. Its zero value is ready for use, and it is
// safe for concurrent use.
type Trace struct {
	mu    sync.Mutex
	steps map[types.UID][]step
}

type step struct {
	name    string
	start   time.Time
	elapsed time.Duration
}

// Record adds one step of the pod.
func (t *Trace) Record(uid types.UID, name string, start time.Time, elapsed time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.steps == nil {
		t.steps = map[types.UID][]step{}
	}
	t.steps[uid] = append(t.steps[uid], step{name, start, elapsed})
}

// of returns the pod's steps by their start, with times since begin.
func (t *Trace) of(uid types.UID, begin time.Time) []Phase {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	phases := make([]Phase, 0, len(t.steps[uid]))
	for _, s := range t.steps[uid] {
		phases = append(phases, Phase{Name: s.name, Start: s.start.Sub(begin), Elapsed: s.elapsed})
	}
	slices.SortStableFunc(phases, func(a, b Phase) int { return cmp.Compare(a.Start, b.Start) })
	return phases
}
