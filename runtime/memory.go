package runtime

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// memory is what this process remembers of a pod between two calls, guarded by Pods.mu. All
// else is in the pod's record.
type memory struct {
	since       time.Time // when this process first saw it: what was pulled before may be out of date
	prepared    bool      // volumes, cgroup and files are there
	synced      bool      // this process works on the pod
	pulled      bool      // images were asked for that no container mounts
	timed       bool      // the deadline will wake the waiters
	nextMeasure time.Time // when its storage may be measured again
	exceeded    string    // the limit on storage that it was found to exceed
	crashes     map[string]crash
	killed      map[string]string // by container ID: the probe's message for which it was killed
	annotations map[string]string // of its last sandbox
	logPaths    map[string]string // by container ID: of the newest instances and those before
	images      map[imageRef]*foundImage
}

// crash counts how often a container ended soon after its start.
type crash struct {
	count  int
	lastID string
}

// remember calls f with what is remembered of the pod.
func (p *Pods) remember(uid types.UID, f func(*memory)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.memories[uid]
	if !ok {
		m = newMemory()
		p.memories[uid] = m
	}
	f(m)
}

func newMemory() *memory {
	return &memory{since: time.Now(), crashes: map[string]crash{}, killed: map[string]string{}, images: map[imageRef]*foundImage{}}
}

// forget ends the work on a pod that another process has stopped. Only what reports need of it is
// remembered.
func (p *Pods) forget(uid types.UID) {
	p.probes.keepOnly(uid, nil)
	p.remember(uid, func(m *memory) {
		last := newMemory()
		last.annotations, last.logPaths = m.annotations, m.logPaths
		*m = *last
	})
}

// forgetOthers forgets the pods that this process has not worked on, and that have no record any more.
func (p *Pods) forgetOthers(known []*record.Pod) {
	recorded := make(map[types.UID]bool, len(known))
	for _, r := range known {
		recorded[r.Pod.UID] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.memories, func(uid types.UID, m *memory) bool { return !m.synced && !recorded[uid] })
}

// once sets a field of the pod's memory and reports whether it was not set before.
func (p *Pods) once(uid types.UID, field func(*memory) *bool) (first bool) {
	p.remember(uid, func(m *memory) {
		first = !*field(m)
		*field(m) = true
	})
	return first
}

// recall completes the observation by what is remembered.
func (m *memory) recall(o *podstate.Observation) {
	m.countCrashes(o)
	m.rememberLogs(o)
	o.Killed, o.Exceeded = maps.Clone(m.killed), m.exceeded
}

// rememberLogs remembers the logs of the pod's containers, also when another process removes
// them, and forgets what earlier instances were killed for.
func (m *memory) rememberLogs(o *podstate.Observation) {
	if len(o.Containers) == 0 {
		return
	}
	m.logPaths = make(map[string]string, len(o.Containers))
	for _, c := range o.Containers {
		m.logPaths[c.ID] = c.LogPath
		if c.Last != nil {
			m.logPaths[c.Last.ContainerID] = c.Last.LogPath
		}
	}
	maps.DeleteFunc(m.killed, func(id, _ string) bool {
		_, shown := m.logPaths[id]
		return !shown
	})
}

// countCrashes updates the crash counters from the newest instances. A container that ran
// for ten minutes has recovered.
func (m *memory) countCrashes(o *podstate.Observation) {
	o.Crashes = make(map[string]int, len(o.Containers))
	for name, c := range o.Containers {
		k := m.crashes[name]
		if c.State == engine.StateExited && k.lastID != c.ID && !o.Record.IsDiscarded(c) {
			if c.Exit.FinishedAt.Sub(c.Exit.StartedAt) > podstate.CrashReset {
				k.count = 0
			}
			k = crash{count: k.count + 1, lastID: c.ID}
			m.crashes[name] = k
		}
		o.Crashes[name] = k.count
	}
}

// beforeKill remembers which probe a container is killed for, and keeps the exit of one that
// will be in back-off from making that longer.
func (m *memory) beforeKill(o *podstate.Observation, a podstate.Actions) {
	for id, p := range o.Probes {
		if p.Failed != "" {
			m.killed[id] = podstate.ProbeMessage(p.Failed, p.Last[p.Failed])
		}
	}
	for _, next := range a.Wait {
		for _, k := range a.Kill {
			if k.ID == next.Old {
				m.crashes[k.Name] = crash{count: m.crashes[k.Name].count, lastID: k.ID}
			}
		}
	}
}
