package runtime

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/probe"
)

// Look returns the status of a pod that another process may manage. From now on the running containers of the pod
// are probed for whether they are ready, as often as their probes say, and Changes tells when that changes. Nothing
// else follows from it: no container is restarted, and nothing is recorded.
func (p *Pods) Look(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error) {
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return v1.PodStatus{}, err
	}
	p.probeAlong(ctx, obs)
	return podstate.Status(obs, time.Now()), nil
}

// probeAlong makes sure that exactly the running containers are probed that can be reached and have started, and adds
// what their probes have found to the observation.
func (p *Pods) probeAlong(ctx context.Context, o *podstate.Observation) {
	var running []string
	for _, def := range podspec.Containers(o.Pod) {
		c := o.Containers[def.Name]
		if o.Sandbox == nil || c.State != engine.StateRunning || o.Record.AwaitsPostStart(def, c.ID) {
			continue
		}
		running = append(running, c.ID)
		def = withoutStartup(podstate.WithHealthcheck(def, c), o.Record, c).DeepCopy()
		def.LivenessProbe = nil
		if def.StartupProbe == nil && def.ReadinessProbe == nil {
			continue
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		if !p.probes.add(c.ID, &probeWorker{pod: o.Pod.UID, status: probe.Initial(def), stop: cancel}) {
			cancel()
			continue
		}
		target := p.counted(o.Pod.UID, p.target(def, c, *o.Sandbox))
		p.probes.running.Go(func() {
			probe.Watch(ctx, target, c.StartedAt, func(s probe.Status) {
				p.probes.setStatus(c.ID, s)
				p.watch.notify(string(o.Pod.UID))
			})
		})
	}
	p.probes.keepOnly(o.Pod.UID, running)
	o.Probes = p.probes.of(o.Pod.UID)
}
