package runtime

import (
	"context"
	"slices"
	"sync"

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
		a.status = s
	}
}

// watchProbes sees to it that just the running containers of the pod are asked. The asking
// outlives the call.
func (p *Pods) watchProbes(ctx context.Context, at place) error {
	if !slices.ContainsFunc(containersOf(at.pod), hasProbes) {
		return nil
	}
	cs, _, err := p.instances(ctx, at.pod)
	if err != nil {
		return err
	}
	var running []string
	for _, def := range containersOf(at.pod) {
		c := cs[def.Name]
		if c.State != StateRunning || !hasProbes(def) {
			continue
		}
		running = append(running, c.ID)
		p.watchContainer(ctx, at, def, c)
	}
	p.probes.keep(at.pod.UID, running)
	return nil
}

func (p *Pods) watchContainer(ctx context.Context, at place, def *v1.Container, c Container) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if !p.probes.begin(c.ID, &ask{pod: at.pod.UID, stop: cancel}) {
		cancel()
		return
	}
	t := target(def, at.box)
	t.Exec = func(ctx context.Context, command []string) (int32, []byte, error) {
		res, err := p.o.Engine.Exec(ctx, c.ID, command)
		return res.ExitCode, res.Output, err
	}
	uid := string(at.pod.UID)
	go probe.Watch(ctx, t, c.StartedAt, func(s probe.Status) {
		p.probes.report(c.ID, s)
		p.watch.notify(uid)
	})
}

func hasProbes(c *v1.Container) bool {
	return c.StartupProbe != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil
}
