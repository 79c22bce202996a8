package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/network"
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

// watchProbes sees to it that just the running containers of the pod are asked. The asking
// outlives the call.
func (p *Pods) watchProbes(ctx context.Context, at place) error {
	if !slices.ContainsFunc(podspec.Containers(at.pod), hasProbes) {
		return nil
	}
	cs, _, err := p.instances(ctx, at.pod)
	if err != nil {
		return err
	}
	var running []string
	for _, def := range podspec.Containers(at.pod) {
		c := cs[def.Name]
		if c.State != engine.StateRunning || !hasProbes(def) {
			continue
		}
		running = append(running, c.ID)
		p.watchContainer(ctx, at, def, c)
	}
	p.probes.keep(at.pod.UID, running)
	return nil
}

func (p *Pods) watchContainer(ctx context.Context, at place, def *v1.Container, c engine.Container) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if !p.probes.begin(c.ID, &ask{pod: at.pod.UID, stop: cancel}) {
		cancel()
		return
	}
	uid := string(at.pod.UID)
	go probe.Watch(ctx, p.target(def, c, at.box), c.StartedAt, func(s probe.Status) {
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
	pods, err := p.store.list()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	turn := make(chan struct{}, maxAsked)
	for _, pod := range pods {
		cs, _, err := p.instances(ctx, pod)
		if err != nil {
			return err
		}
		box, err := p.o.Sandboxes.Get(ctx, pod)
		if errors.Is(err, fs.ErrNotExist) {
			continue // nobody can be reached there
		}
		if err != nil {
			return fmt.Errorf("looking at the sandbox of pod %q: %w", pod.Name, err)
		}
		for _, def := range podspec.Containers(pod) {
			c := cs[def.Name]
			asked := def.StartupProbe != nil || def.ReadinessProbe != nil
			if c.State != engine.StateRunning || !asked || !p.probes.begin(c.ID, &ask{pod: pod.UID, stop: func() {}}) {
				continue
			}
			wg.Go(func() {
				turn <- struct{}{}
				p.probes.report(c.ID, probe.Once(ctx, p.target(def, c, box), c.StartedAt))
				<-turn
			})
		}
	}
	return nil
}

// target is the container as its probes reach it.
func (p *Pods) target(def *v1.Container, c engine.Container, box network.Sandbox) probe.Target {
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
