package runonce

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Meter is told what a run measures, in the terms of the kubelet's metrics (pkg/kubelet/metrics). It is safe for
// concurrent use.
type Meter interface {
	// WorkerStarted is called when the run first syncs a pod, this time after it was seen.
	WorkerStarted(pod *v1.Pod, after time.Duration)
	// Synced is called after each sync of a pod, with the time that it took, without the wait for a slot.
	Synced(pod *v1.Pod, of SyncType, took time.Duration)
	// Started is called when a pod that the run has started runs, this time after it was seen.
	Started(pod *v1.Pod, after time.Duration)
	// Restarted is called when containers of a pod were restarted so often.
	Restarted(pod *v1.Pod, times int)
	// Preempted is called when a running pod was stopped for another one, with the first resource that this lacked,
	// "" for none.
	Preempted(pod *v1.Pod, lacked v1.ResourceName)
	// Evicted is called when a pod has ended because of what it uses, with the kubelet's signal.
	Evicted(pod *v1.Pod, signal string)
}

// SyncType is what a sync is for (pkg/kubelet/types SyncPodType).
type SyncType string

// The types of syncs: the first one of a pod in a run, later ones, and the one after the pod has ended.
const (
	SyncCreate     SyncType = "create"
	SyncSync       SyncType = "sync"
	SyncTerminated SyncType = "terminated"
)

// noMeter measures nothing.
type noMeter struct{}

func (noMeter) WorkerStarted(*v1.Pod, time.Duration)    {}
func (noMeter) Synced(*v1.Pod, SyncType, time.Duration) {}
func (noMeter) Started(*v1.Pod, time.Duration)          {}
func (noMeter) Restarted(*v1.Pod, int)                  {}
func (noMeter) Preempted(*v1.Pod, v1.ResourceName)      {}
func (noMeter) Evicted(*v1.Pod, string)                 {}

// measured is what the meter knows of a pod.
type measured struct {
	synced, started bool
	restarts        int
}

// measureSync tells the meter of a sync that was begun then and took this time.
func (p *pod) measureSync(begin time.Time, took time.Duration) {
	of := SyncSync
	if !p.measured.synced {
		p.measured.synced, of = true, SyncCreate
		p.r.o.Meter.WorkerStarted(p.pod, begin.Sub(p.r.o.Seen))
	}
	p.r.o.Meter.Synced(p.pod, of, took)
}

// measureStatus tells the meter what is new in the pod's status.
func (p *pod) measureStatus() {
	m := &p.measured
	if p.status.Phase == v1.PodRunning && !m.started && !p.res.Existed {
		m.started = true
		p.r.o.Meter.Started(p.pod, time.Since(p.r.o.Seen))
	}
	now := p.history.restarts(p.status)
	if now > m.restarts {
		p.r.o.Meter.Restarted(p.pod, now-m.restarts)
	}
	m.restarts = now
}

// measureEnd tells the meter that the pod was evicted, if so.
func (p *pod) measureEnd() {
	if signal := podspec.EvictionSignal(p.status); signal != "" && p.begun() {
		p.r.o.Meter.Evicted(p.pod, signal)
	}
}
