package runtime

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// Status returns the pod's status, as the kubelet computes it. It changes nothing. A pod that
// is absent is Pending.
func (p *Pods) Status(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error) {
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return v1.PodStatus{}, err
	}
	now := time.Now()
	p.remember(pod.UID, func(m *memory) {
		m.settled = m.idle == syncedAs{pod, obs.Record} && podstate.Decide(obs, now).None()
	})
	return podstate.Status(obs, now), nil
}

// List returns the pods of earlier runs, and of this one, with their status filled in.
func (p *Pods) List(ctx context.Context) ([]*v1.Pod, error) {
	known, err := p.Known(false)
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, 0, len(known))
	for _, r := range known {
		pod, err := p.Listed(ctx, r, false)
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// Known returns the records of the pods that List lists, in the same order, and with admitted of those that a run goes
// on with which has not started them yet. They must not be changed: a pod whose record changes has another one then.
func (p *Pods) Known(admitted bool) ([]*record.Pod, error) {
	known, err := p.o.Records.List()
	if err != nil {
		return nil, err
	}
	p.forgetOthers(known)
	return slices.DeleteFunc(known, func(r *record.Pod) bool {
		// Others were admitted by a run, or removed.
		return r.Started.IsZero() && (!admitted || r.Removed || !p.o.Records.IsWatched(r))
	}), nil
}

// Listed returns the pod of a record as List does, or with look with its status as Look returns it: with its status, and what a cluster
// would have added to it.
func (p *Pods) Listed(ctx context.Context, r *record.Pod, look bool) (*v1.Pod, error) {
	obs, err := p.observe(ctx, r.Pod)
	if err != nil {
		return nil, err
	}
	if look {
		p.probeAlong(ctx, obs)
	}
	pod := *r.Pod
	pod.Status = podstate.Status(obs, time.Now())
	if f, failed := podstate.PodFailure(obs, pod.Status); failed {
		pod.Status.Reason, pod.Status.Message = f.Reason, f.Message
	}
	if added := p.annotations(r.Pod, obs.Sandbox); len(added) > 0 {
		pod.Annotations = maps.Clone(added)
		maps.Copy(pod.Annotations, r.Pod.Annotations)
	}
	return &pod, nil
}

// NodeIPs returns the addresses of the node, the primary one first.
func (p *Pods) NodeIPs() []string { return p.o.Node.IPs }

// Annotations returns what a cluster would have added to the pod while it ran: its network
// status, if it has joined several networks. A pod without a sandbox has none, unless this
// process has seen it.
func (p *Pods) Annotations(ctx context.Context, pod *v1.Pod) map[string]string {
	var sandbox *engine.Sandbox
	if s, err := p.o.Sandboxes.Get(ctx, pod); err == nil {
		sandbox = &s
	}
	return p.annotations(pod, sandbox)
}

func (p *Pods) annotations(pod *v1.Pod, sandbox *engine.Sandbox) (all map[string]string) {
	if sandbox != nil {
		return sandbox.Annotations
	}
	p.remember(pod.UID, func(m *memory) { all = m.annotations })
	return all
}

// Digests returns the digests of the images that the pod's containers were made from, by the names
// of the containers.
func (p *Pods) Digests(ctx context.Context, pod *v1.Pod) map[string]string {
	digests := map[string]string{}
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		p.o.Log.Warn("could not find the digests of images", "pod", podspec.FullName(pod), "error", err)
	}
	for _, c := range all {
		digests[c.Name] = c.ImageDigest // of the newest instance
	}
	return digests
}
