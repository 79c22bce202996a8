package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
)

const (
	// measureEvery bounds how often the storage of a pod is measured: a pod is observed every
	// ten seconds, as by the kubelet's eviction manager, but with events far more often.
	measureEvery = time.Second
	// measurePause is how many times as long as a measurement the pause after it is.
	measurePause = 5
)

// measure finds out whether the pod uses more local storage than it may, if that is due.
// Limits are only enforced on what this process has synced, not on what it lists.
func (p *Pods) measure(ctx context.Context, o *podstate.Observation) error {
	if !podstate.LimitsStorage(o.Pod) || !running(o) || o.Record.Failed != nil {
		return nil
	}
	due := false
	p.remember(o.Pod.UID, func(m *memory) {
		if due = m.synced && !time.Now().Before(m.nextMeasure); due {
			m.nextMeasure = time.Now().Add(measureEvery)
		}
	})
	if !due {
		return nil
	}
	begin := time.Now()
	used, err := p.storage(ctx, o)
	if err != nil {
		return fmt.Errorf("measuring the storage of pod %q: %w", o.Pod.Name, err)
	}
	p.remember(o.Pod.UID, func(m *memory) {
		m.exceeded = podstate.StorageExceeded(o.Pod, used)
		// Where a measurement takes long, the machine must not do much else.
		m.nextMeasure = time.Now().Add(max(measureEvery, measurePause*time.Since(begin)))
	})
	return nil
}

func running(o *podstate.Observation) bool {
	for _, c := range o.Containers {
		if c.State == engine.StateRunning {
			return true
		}
	}
	return false
}

// storage measures what the pod uses.
func (p *Pods) storage(ctx context.Context, o *podstate.Observation) (podstate.StorageUsage, error) {
	used := podstate.StorageUsage{Containers: map[string]int64{}}
	pod := o.Pod
	var err error
	if used.Volumes, err = p.o.Volumes.Usage(ctx, pod); err != nil {
		return used, err
	}
	for name, c := range o.Containers {
		// Of older instances the kubelet keeps only the last.
		written, err := logUsage(c)
		if err != nil {
			return used, err
		}
		layer, err := p.o.Engine.Usage(ctx, c.ID)
		if err != nil {
			return used, err
		}
		used.Containers[name] = written + layer
	}
	return used, nil
}
