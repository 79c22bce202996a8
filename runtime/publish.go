package runtime

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

// Publish has others reach the pod by its name, and through Services if it is ready, as its status says; and has
// nobody reach it through Services who is not ready any more. When it returns, that is so.
func (p *Pods) Publish(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error {
	if p.o.Services == nil {
		return nil
	}
	ready := podspec.IsReady(st)
	now := fmt.Sprint(ready, st.PodIPs)
	known := ""
	p.remember(pod.UID, func(m *memory) { known = m.published })
	if known == now || known == "" && !ready && p.awaitsProbe(pod, st) {
		return p.o.Services.Keep(ctx)
	}
	_, err := p.o.Records.Update(pod.UID, func(r *record.Pod) error {
		r.Ready = ready && r.Sandbox != nil
		return nil
	})
	if err == nil {
		err = p.o.Services.Update(ctx, pod)
	}
	if err != nil {
		return fmt.Errorf("publishing pod %q: %w", pod.Name, err)
	}
	p.remember(pod.UID, func(m *memory) { m.published = now })
	return nil
}

// awaitsProbe reports whether the pod was ready for an earlier process, and may still be: this one has no result of a
// readiness probe yet.
func (p *Pods) awaitsProbe(pod *v1.Pod, st v1.PodStatus) bool {
	known, err := p.known(pod.UID)
	if err != nil || !known.Ready || known.Failed != nil {
		return false
	}
	results := p.probes.of(pod.UID)
	return slices.ContainsFunc(podspec.Statuses(st), func(cs v1.ContainerStatus) bool {
		def := podspec.Container(pod, cs.Name)
		if cs.State.Running == nil || def == nil {
			return false
		}
		_, id, _ := strings.Cut(cs.ContainerID, "://")
		now := results[id]
		_, probed := now.Last[probe.Readiness]
		healthcheck := now.Started && !now.Ready // its probe is that of the image
		return !probed && (def.ReadinessProbe != nil || healthcheck)
	})
}

// environment returns the variables about Services for the containers of the pod.
func (p *Pods) environment(pod *v1.Pod) ([]v1.EnvVar, error) {
	if p.o.Services == nil {
		return nil, nil
	}
	return p.o.Services.Environment(pod)
}

// withdraw has nobody reach through Services a pod that is to stop, if anybody does.
func (p *Pods) withdraw(ctx context.Context, pod *v1.Pod) {
	if known, err := p.known(pod.UID); err != nil || known.Ready {
		p.retract(ctx, pod)
	}
}

// retract brings names and Services up to date with a pod that stops or is gone. Who stops it needs that more than an
// error here.
func (p *Pods) retract(ctx context.Context, pod *v1.Pod) {
	if p.o.Services == nil {
		return
	}
	if err := p.o.Services.Update(ctx, pod); err != nil {
		p.o.Log.WarnContext(ctx, "could not withdraw a pod that was stopped from names and Services", "pod", podspec.FullName(pod), "error", err)
	}
}
