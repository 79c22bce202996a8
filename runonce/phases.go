package runonce

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Phases records the steps of every pod's start. Its zero value is ready for use, and
// it is safe for concurrent use.
type Phases struct {
	mu    sync.Mutex
	steps map[types.UID][]step
}

type step struct {
	name    string
	start   time.Time
	elapsed time.Duration
}

// Record adds one step of the pod.
func (p *Phases) Record(uid types.UID, name string, start time.Time, elapsed time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps == nil {
		p.steps = map[types.UID][]step{}
	}
	p.steps[uid] = append(p.steps[uid], step{name, start, elapsed})
}

// of returns the pod's steps in order of their start, with times since begin.
func (p *Phases) of(uid types.UID, begin time.Time) []Phase {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	phases := make([]Phase, 0, len(p.steps[uid]))
	for _, s := range p.steps[uid] {
		phases = append(phases, Phase{Name: s.name, Start: s.start.Sub(begin), Elapsed: s.elapsed})
	}
	slices.SortStableFunc(phases, func(a, b Phase) int { return cmp.Compare(a.Start, b.Start) })
	return phases
}
