package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime/engine"
)

// Usage returns what the pods use, by their UIDs: of processors on average over the interval, and of memory at its
// end. A pod is its cgroup, so its usage includes what its containers do not have, such as files in a volume in
// memory. A pod of which nothing runs is left out, as is a container that starts or ends meanwhile.
func (p *Pods) Usage(ctx context.Context, pods []*v1.Pod, interval time.Duration) (map[types.UID]podusage.Pod, error) {
	samples := map[types.UID]usageSample{}
	for _, pod := range pods {
		s, err := p.sampleUsage(ctx, pod, nil)
		if err != nil {
			return nil, err
		}
		if len(s.ids) > 0 {
			samples[pod.UID] = s
		}
	}
	usage := map[types.UID]podusage.Pod{}
	if len(samples) == 0 {
		return usage, nil
	}
	select {
	case <-time.After(interval):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for _, pod := range pods {
		before, known := samples[pod.UID]
		if !known {
			continue
		}
		now, err := p.sampleUsage(ctx, pod, before.ids)
		if err != nil {
			return nil, err
		}
		if len(now.containers) > 0 {
			usage[pod.UID] = now.since(before, pod)
		}
	}
	return usage, nil
}

// Used returns what a pod has used so far, and each of its running containers by its name.
func (p *Pods) Used(ctx context.Context, pod *v1.Pod) (podusage.Sample, map[string]podusage.Sample, error) {
	s, err := p.sampleUsage(ctx, pod, nil)
	containers := map[string]podusage.Sample{}
	for name, id := range s.ids {
		if used, ok := s.containers[id]; ok {
			containers[name] = used
		}
	}
	return s.pod, containers, err
}

// usageSample is what a pod has used up to a moment.
type usageSample struct {
	at         time.Time
	ids        map[string]string // of the containers that run, by their names
	pod        podusage.Sample
	containers map[string]podusage.Sample // by ID
}

// sampleUsage reads what the pod has used, and its containers with the IDs, nil for those that run now. A pod that is
// gone has used nothing.
func (p *Pods) sampleUsage(ctx context.Context, pod *v1.Pod, ids map[string]string) (usageSample, error) {
	if ids == nil {
		all, err := p.o.Engine.Containers(ctx, string(pod.UID))
		if err != nil {
			return usageSample{}, fmt.Errorf("listing containers of pod %q: %w", pod.Name, err)
		}
		ids = map[string]string{}
		for _, c := range all {
			if c.State == engine.StateRunning && podspec.Container(pod, c.Name) != nil {
				ids[c.Name] = c.ID
			}
		}
	}
	s := usageSample{ids: ids}
	of := make([]string, 0, len(ids))
	for _, id := range ids {
		of = append(of, id)
	}
	var err error
	s.pod, s.containers, err = p.o.Cgroups.Usage(pod, of)
	s.at = time.Now()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("pod %q: %w", podspec.FullName(pod), err)
	}
	return s, nil
}

// since returns what the pod has used between two samples.
func (s usageSample) since(before usageSample, pod *v1.Pod) podusage.Pod {
	took := s.at.Sub(before.at)
	out := podusage.Pod{Usage: s.pod.Since(before.pod, took), Containers: []podusage.Container{}}
	for _, c := range podspec.AllContainers(pod) {
		id := s.ids[c.Name]
		now, ok := s.containers[id]
		if then, both := before.containers[id]; ok && both {
			out.Containers = append(out.Containers, podusage.Container{Name: c.Name, Usage: now.Since(then, took)})
		}
	}
	return out
}

// Totals returns what the pod's containers have used, by their names: of each its newest instance, as far as that is known.
func (p *Pods) Totals(ctx context.Context, pod *v1.Pod) map[string]podusage.Total {
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		p.o.Log.Warn("could not find out what containers have used", "pod", podspec.FullName(pod), "error", err)
	}
	totals, ids, running := map[string]podusage.Total{}, []string{}, map[string]string{}
	for _, c := range all { // the newest instance is the last one
		totals[c.Name] = c.Exit.Usage
		switch {
		case c.State == engine.StateRunning:
			ids, running[c.ID] = append(ids, c.ID), c.Name
		case c.State == engine.StateCreated && c.Last != nil:
			totals[c.Name] = c.Last.Usage
		}
	}
	if len(ids) > 0 {
		for id, used := range p.o.Cgroups.Totals(pod, ids) {
			totals[running[id]] = used
		}
	}
	return totals
}
