package runtime

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
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

// probeRunning makes sure that exactly the running containers of the pod are probed, also
// after the call.
func (p *Pods) probeRunning(ctx context.Context, w *work) {
	var running []string
	for _, def := range podspec.Containers(w.pod) {
		if c, ok := w.running[def.Name]; ok {
			running = append(running, c.ID)
			p.startProbes(ctx, w, def, c)
		}
	}
	p.probes.keepOnly(w.pod.UID, running)
}

// startProbes probes the container until it is stopped, if it has probes.
func (p *Pods) startProbes(ctx context.Context, w *work, def *v1.Container, c engine.Container) {
	if def.StartupProbe == nil && def.ReadinessProbe == nil && def.LivenessProbe == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	target := p.target(withoutStartup(def, w.record, c), c, w.sandbox)
	status := probe.Initial(target.Container)
	if status.Ready {
		status.Since = time.Now()
	}
	if !p.probes.add(c.ID, &probeWorker{pod: w.pod.UID, status: status, stop: cancel}) {
		cancel()
		return
	}
	uid := string(w.pod.UID)
	report := func(s probe.Status) {
		before := p.probes.setStatus(c.ID, s)
		p.probeEvents(w.pod, def.Name, before, s)
		if s.Started && !before.Started && target.Container.StartupProbe != nil {
			p.recordStartedUp(ctx, w.pod, c)
		}
		p.watch.notify(uid)
	}
	p.probes.running.Go(func() { probe.Watch(ctx, target, c.StartedAt, report) })
}

// Wait waits, when the context of New is done, until the probes have ended: a command that nobody
// kills may run in its container for ever.
func (p *Pods) Wait() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.probes.running.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(probesLimit):
	}
}

// withoutStartup returns the container without its startup probe if that has succeeded in an
// earlier process: like the kubelet after a restart, we do not run it again.
func withoutStartup(def *v1.Container, r *record.Pod, c engine.Container) *v1.Container {
	if def.StartupProbe == nil || !r.HasStartedUp(def, c.ID) {
		return def
	}
	def = def.DeepCopy()
	def.StartupProbe = nil
	return def
}

// recordStartedUp records that the startup probe of the container has succeeded.
func (p *Pods) recordStartedUp(ctx context.Context, pod *v1.Pod, c engine.Container) {
	err := p.update(pod, func(r *record.Pod) {
		if r.StartedUp == nil {
			r.StartedUp = map[string]string{}
		}
		r.StartedUp[c.Name] = c.ID
	})
	if err != nil {
		p.o.Log.WarnContext(ctx, "the success of a startup probe is not recorded", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name, "error", err)
	}
}

const (
	// maxProbes is how many containers Probe probes at once.
	maxProbes = 32
	// probesLimit bounds Probe and Wait: the timeout of a probe may be minutes, and nobody waits for that.
	probesLimit = 10 * time.Second
)

var errNoAnswer = fmt.Errorf("no answer within %s", probesLimit)

// Probe probes each running container of earlier runs that has a startup or a readiness probe,
// once, so that List tells whether it is ready now. Containers that this process probes anyway
// are left out. A probe that takes long has not succeeded.
func (p *Pods) Probe(ctx context.Context) error {
	known, err := p.o.Records.List()
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, probesLimit, errNoAnswer)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxProbes)
	for _, r := range known {
		o, err := p.observe(ctx, r.Pod)
		if err != nil {
			return err
		}
		if o.Sandbox == nil {
			continue // its containers cannot be reached
		}
		for _, def := range podspec.Containers(r.Pod) {
			c := o.Containers[def.Name]
			def = withoutStartup(def, r, c)
			hasProbes := def.StartupProbe != nil || def.ReadinessProbe != nil
			if c.State != engine.StateRunning || !hasProbes || !p.probes.add(c.ID, &probeWorker{pod: r.Pod.UID, stop: func() {}}) {
				continue
			}
			wg.Go(func() {
				slots <- struct{}{}
				p.probes.setStatus(c.ID, probe.Once(limited, p.target(def, c, *o.Sandbox), c.StartedAt))
				<-slots
			})
		}
	}
	return nil
}
