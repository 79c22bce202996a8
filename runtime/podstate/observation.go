// Package podstate decides, from one observation of a pod, what to do and what its status is.
// It is pure: it reads nothing else and changes nothing.
package podstate

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

// Observation is all that is known of a pod at one instant.
type Observation struct {
	Pod *v1.Pod // as its record defines it, see record.Pod.Definition
	// Containers are the newest instance of each container of the pod, by name. A start that
	// failed for good is an instance that has ended.
	Containers map[string]engine.Container
	Stale      []string         // IDs of older instances and of containers that are not the pod's
	Pause      engine.Container // of a pod with a shared process namespace
	// Sandbox is nil for a pod that has none, or has lost it. IPs are the pod's addresses until
	// its sandbox is removed.
	Sandbox *engine.Sandbox
	IPs     []string
	Record  *record.Pod // empty for a pod that was never admitted
	// Probes are the results for the containers that are being probed, by container ID.
	Probes map[string]probe.Status

	// What the observing process remembers.
	Crashes map[string]int    // by name: how often it ended since it last ran for CrashReset
	Killed  map[string]string // by container ID: the probe's message for which it was killed
	// Exceeded says which limit on local storage the pod exceeds, empty for none.
	Exceeded string

	// MostRestarts are how often containers may have been restarted, by name: nothing is started
	// beyond. Those without a number have no limit.
	MostRestarts map[string]int

	HostIPs []string // the primary one first
	// RecursiveReadOnly says whether mounts of this pod can be recursively read-only; nil means
	// no. It is called only when a volumeMount needs to know.
	RecursiveReadOnly func(*v1.Pod) bool
}

// PauseName is the name of the container whose process is the first of a pod's shared
// process namespace. No container of a manifest can have it: those are DNS labels.
const PauseName = "POD"

// SharesProcesses says whether the containers of the pod share one process namespace.
func SharesProcesses(pod *v1.Pod) bool {
	return pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace
}

// SetContainers sorts what the engine has of the pod. A pod with a shared process namespace
// whose pause process does not run has lost its sandbox: the kernel has killed every process
// with it.
func (o *Observation) SetContainers(all []engine.Container) {
	o.Containers, o.Stale = newest(o.Pod, all)
	for name, failed := range o.Record.FailedStarts {
		c, ok := o.Containers[name]
		if ok && c.Attempt >= failed.Attempt {
			continue
		}
		if ok {
			o.Stale = append(o.Stale, c.ID)
		}
		o.Containers[name] = failed
	}
	if !SharesProcesses(o.Pod) {
		return
	}
	o.Pause = o.Containers[PauseName]
	delete(o.Containers, PauseName)
	if o.Pause.State != engine.StateRunning {
		o.Sandbox = nil
	}
}

// newest returns the last instance of each container of the pod, and of the pause process, and
// the IDs of all others.
func newest(pod *v1.Pod, all []engine.Container) (byName map[string]engine.Container, stale []string) {
	byName = make(map[string]engine.Container, len(all))
	known := map[string]bool{PauseName: SharesProcesses(pod)}
	for _, def := range podspec.AllContainers(pod) {
		known[def.Name] = true
	}
	for _, c := range all {
		old, seen := byName[c.Name]
		switch {
		case !known[c.Name], seen && old.Attempt > c.Attempt:
			stale = append(stale, c.ID)
			continue
		case seen:
			stale = append(stale, old.ID)
		}
		byName[c.Name] = c
	}
	return byName, stale
}

// LastRun returns the number of the last instance of each container that ran and may run again. One that was
// created and never ran is left out: the next start makes it again, with the same number.
func (o *Observation) LastRun() map[string]int {
	last := make(map[string]int, len(o.Containers))
	for name, c := range o.Containers {
		if podspec.IsEphemeral(o.Pod, name) {
			continue
		}
		last[name] = c.Attempt
		if c.State == engine.StateCreated {
			last[name]--
		}
	}
	return last
}

// Deadline returns when the pod has been active for as long as its activeDeadlineSeconds
// allows (pkg/kubelet/active_deadline.go). A pod that was never started has none yet.
func Deadline(pod *v1.Pod, r *record.Pod) (time.Time, bool) {
	limit := pod.Spec.ActiveDeadlineSeconds
	if limit == nil || r.Started.IsZero() {
		return time.Time{}, false
	}
	return r.Started.Add(time.Duration(*limit) * time.Second), true
}

// Overdue reports whether the deadline has passed.
func (o *Observation) Overdue(now time.Time) bool {
	deadline, limited := Deadline(o.Pod, o.Record)
	return limited && !now.Before(deadline)
}
