package runtime

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/probe"
)

// probes asks the containers that have probes. Its zero value is ready for use.
type probes struct {
	mu   sync.Mutex
	asks map[string]*ask // by container ID
}

// ask is one container that is asked.
type ask struct {
	pod    types.UID
	status probe.Status
	stop   context.CancelFunc
}

// of returns what is known of the pod's containers, by ID.
func (p *probes) of(uid types.UID) map[string]probe.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	var known map[string]probe.Status
	for id, a := range p.asks {
		if a.pod != uid {
			continue
		}
		if known == nil {
			known = map[string]probe.Status{}
		}
		known[id] = a.status
	}
	return known
}

// keep goes on with the containers of the pod that are named, and stops with the others.
func (p *probes) keep(uid types.UID, ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, a := range p.asks {
		if a.pod == uid && !slices.Contains(ids, id) {
			a.stop()
			delete(p.asks, id)
		}
	}
}

// stop stops with all containers.
func (p *probes) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, a := range p.asks {
		a.stop()
		delete(p.asks, id)
	}
}

// begin returns false when the container is asked already.
func (p *probes) begin(id string, a *ask) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.asks[id]; ok {
		return false
	}
	if p.asks == nil {
		p.asks = map[string]*ask{}
	}
	p.asks[id] = a
	return true
}

func (p *probes) report(id string, s probe.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.asks[id]; ok {
		s.Since = a.status.Since
		if s.Ready != a.status.Ready {
			s.Since = time.Now()
		}
		a.status = s
	}
}

// probeRunning sees to it that just the running containers of the pod are probed. That
// outlives the call.
func (p *Pods) probeRunning(ctx context.Context, w *work) {
	var running []string
	for _, def := range podspec.Containers(w.pod) {
		if c, ok := w.running[def.Name]; ok && hasProbes(def) {
			running = append(running, c.ID)
			p.watchContainer(ctx, w, def, c)
		}
	}
	p.probes.keep(w.pod.UID, running)
}

func (p *Pods) watchContainer(ctx context.Context, w *work, def *v1.Container, c engine.Container) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if !p.probes.begin(c.ID, &ask{pod: w.pod.UID, stop: cancel}) {
		cancel()
		return
	}
	uid := string(w.pod.UID)
	go probe.Watch(ctx, p.target(def, c, w.sandbox), c.StartedAt, func(s probe.Status) {
		p.probes.report(c.ID, s)
		p.watch.notify(uid)
	})
}

// maxAsked is how many containers are asked at once by Probe.
const maxAsked = 32

// Probe asks each running container of earlier runs that has a startup or a readiness probe,
// once, so that List tells whether it is ready now. Containers that this process watches are
// not asked again. It takes as long as the slowest probe may take.
func (p *Pods) Probe(ctx context.Context) error {
	known, err := p.o.Records.List()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	turn := make(chan struct{}, maxAsked)
	for _, r := range known {
		o, err := p.observe(ctx, r.Pod)
		if err != nil {
			return err
		}
		if o.Sandbox == nil {
			continue // nobody can be reached there
		}
		for _, def := range podspec.Containers(r.Pod) {
			c := o.Containers[def.Name]
			asked := def.StartupProbe != nil || def.ReadinessProbe != nil
			if c.State != engine.StateRunning || !asked || !p.probes.begin(c.ID, &ask{pod: r.Pod.UID, stop: func() {}}) {
				continue
			}
			wg.Go(func() {
				turn <- struct{}{}
				p.probes.report(c.ID, probe.Once(ctx, p.target(def, c, *o.Sandbox), c.StartedAt))
				<-turn
			})
		}
	}
	return nil
}

// target is the container as its probes reach it.
func (p *Pods) target(def *v1.Container, c engine.Container, box engine.Sandbox) probe.Target {
	t := target(def, box)
	t.Exec = func(ctx context.Context, command []string) (int32, []byte, error) {
		res, err := p.o.Engine.Exec(ctx, c.ID, command)
		return res.ExitCode, res.Output, err
	}
	return t
}

func hasProbes(c *v1.Container) bool {
	return c.StartupProbe != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil
}
