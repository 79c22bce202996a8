package runtime

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/probe"
)

// probes are the containers that are being probed, by ID. The zero value is ready for use.
type probes struct {
	mu      sync.Mutex
	workers map[string]*probeWorker
	running sync.WaitGroup
}

// probeWorker probes one container.
type probeWorker struct {
	pod    types.UID
	status probe.Status
	stop   context.CancelFunc
}

// of returns the results for the pod's containers, by ID.
func (p *probes) of(uid types.UID) map[string]probe.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	results := map[string]probe.Status{}
	for id, w := range p.workers {
		if w.pod == uid {
			results[id] = w.status
		}
	}
	return results
}

// keepOnly stops probing the pod's containers but for those with the given IDs.
func (p *probes) keepOnly(uid types.UID, ids []string) {
	p.remove(func(id string, w *probeWorker) bool { return w.pod == uid && !slices.Contains(ids, id) })
}

func (p *probes) stopAll() { p.remove(func(string, *probeWorker) bool { return true }) }

func (p *probes) remove(which func(id string, w *probeWorker) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.workers, func(id string, w *probeWorker) bool {
		if !which(id, w) {
			return false
		}
		w.stop()
		return true
	})
}

// add returns false when the container is being probed already.
func (p *probes) add(id string, w *probeWorker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.workers[id]; ok {
		return false
	}
	if p.workers == nil {
		p.workers = map[string]*probeWorker{}
	}
	p.workers[id] = w
	return true
}

// setStatus returns the status before.
func (p *probes) setStatus(id string, s probe.Status) (before probe.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.workers[id]; ok {
		before = w.status
		s.Since = before.Since
		if s.Ready != before.Ready {
			s.Since = time.Now()
		}
		w.status = s
	}
	return before
}
