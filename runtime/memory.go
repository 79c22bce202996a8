package runtime

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// memory is what this process remembers of a pod between two calls, guarded by Pods.mu. All
// else is in the pod's record.
type memory struct {
	prepared    bool      // volumes, cgroup and files are there
	synced      bool      // this process works on the pod
	idle        syncedAs  // of the last Sync, if it had nothing to do
	settled     bool      // nor has the next one, by what Status has found
	pulled      bool      // images were asked for that no container mounts
	timed       bool      // the deadline will wake the waiters
	nextMeasure time.Time // when its storage may be measured again
	exceeded    string    // the limit on storage that it was found to exceed
	crashes     map[string]crash
	limits      map[string]int    // by name: how often its containers may have been restarted
	killed      map[string]string // by container ID: the probe's message for which it was killed
	oomKilled   map[string]string // by name: the ID of the last instance that was reported as OOM-killed
	annotations map[string]string // of its last sandbox
	published   string            // what was published of it last
	logPaths    map[string]string // by container ID: of the newest instances and those before
	probed      map[Probed]int    // how often each probe had each result
}

// syncedAs is what a Sync was given, and what was recorded of the pod then.
type syncedAs struct {
	pod    *v1.Pod
	record *record.Pod
}

// crash counts how often a container ended soon after its start.
type crash struct {
	count  int
	lastID string
}

func newMemory() *memory {
	return &memory{crashes: map[string]crash{}, killed: map[string]string{}, oomKilled: map[string]string{}, probed: map[Probed]int{}}
}

// recall completes the observation by what is remembered.
func (m *memory) recall(o *podstate.Observation) {
	m.countCrashes(o)
	m.rememberLogs(o)
	o.Killed, o.Exceeded, o.MostRestarts = maps.Clone(m.killed), m.exceeded, m.limits
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
