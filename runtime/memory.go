package runtime

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
)

// memory is what this process remembers of a pod between two calls. All else is in the pod's
// record.
type memory struct {
	mu       sync.Mutex
	prepared bool      // volumes, cgroup and files are there
	synced   bool      // this process works on the pod
	pulled   bool      // images were asked for that no container mounts
	timed    bool      // the deadline will wake the waiters
	measure  time.Time // when its storage may be measured again
	exceeded string    // the limit on storage that it was found to exceed
	waiting  map[string]podstate.Waiting
	crashes  map[string]crash
	killed   map[string]string // by container ID: the probe's message for which it was killed
	// annotations outlive the sandbox that they tell of.
	annotations map[string]string
}

// crash counts how often a container ended soon after its start.
type crash struct {
	count  int
	lastID string
}

// memoryOf returns what is remembered of the pod.
func (p *Pods) memoryOf(uid types.UID) *memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.memories[uid]
	if !ok {
		m = &memory{waiting: map[string]podstate.Waiting{}, crashes: map[string]crash{}, killed: map[string]string{}}
		p.memories[uid] = m
	}
	return m
}

// recall completes the observation by what is remembered.
func (m *memory) recall(o *podstate.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countCrashes(o)
	o.Waiting, o.Killed, o.Exceeded = maps.Clone(m.waiting), maps.Clone(m.killed), m.exceeded
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

// killing remembers for what probe's sake containers are about to be killed, and keeps the
// end of those that wait from making their back-off longer.
func (m *memory) killing(o *podstate.Observation, a podstate.Actions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, p := range o.Probes {
		if p.Failed != "" {
			m.killed[id] = podstate.ProbeMessage(p.Failed, p.Answers[p.Failed])
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

// update changes what is remembered.
func (m *memory) update(change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// once returns true the first time that it is called with the field.
func (m *memory) once(field func(*memory) *bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := *field(m)
	*field(m) = true
	return !was
}

func (m *memory) setWaiting(container string, w podstate.Waiting) {
	m.update(func(m *memory) { m.waiting[container] = w })
}

func (m *memory) isPrepared() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.prepared
}
