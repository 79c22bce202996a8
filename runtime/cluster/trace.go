package cluster

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// trace notes the steps of each pod's start, by the clock of this machine. Its zero value is ready
// for use.
type trace struct {
	record func(uid types.UID, step string, start time.Time, elapsed time.Duration)

	mu    sync.Mutex
	times map[types.UID]*times // by the cluster's UID
}

// times are when a pod was first seen in a state.
type times struct {
	created, scheduled, started time.Time
	// leaving says that the pod was being deleted by then.
	leaving bool
	// running is when containers were seen to start, by ID; zero for those that ran when the pod was
	// first seen.
	running map[string]time.Time
}

// maxDelay is how long it may take until the start of a container is seen. What is further from the time
// in its status is because of the node's clock.
const maxDelay = 5 * time.Second

// step records a step of the input's pod.
func (t *trace) step(uid types.UID, name string, start time.Time, elapsed time.Duration) {
	if t.record != nil {
		t.record(uid, name, start, elapsed)
	}
}

// state has a new state of a pod of the cluster.
func (t *trace) state(pod *v1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.times == nil {
		t.times = map[types.UID]*times{}
	}
	s, now := t.times[pod.UID], time.Now()
	known := s != nil
	if !known {
		s = &times{created: now, leaving: pod.DeletionTimestamp != nil, running: map[string]time.Time{}}
		t.times[pod.UID] = s
		// What it has reached by now, it has in an earlier run.
		if pod.Spec.NodeName != "" {
			s.scheduled = now
		}
		if started(pod) {
			s.started = now
		}
	}
	for _, cs := range podspec.Statuses(pod.Status) {
		if _, seen := s.running[cs.ContainerID]; seen || cs.State.Running == nil {
			continue
		}
		s.running[cs.ContainerID] = time.Time{}
		if known {
			s.running[cs.ContainerID] = now
		}
	}
	uid := types.UID(pod.Annotations[annotationContent])
	if s.scheduled.IsZero() && pod.Spec.NodeName != "" {
		s.scheduled = now
		t.step(uid, "schedule", s.created, now.Sub(s.created))
	}
	if s.started.IsZero() && started(pod) {
		s.started = now
		t.step(uid, "start", s.scheduled, now.Sub(s.scheduled))
	}
}

// correctClock replaces the start of containers by when it was seen, where the clock of their node is
// wrong.
func (t *trace) correctClock(uid types.UID, st *v1.PodStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.times[uid]
	if s == nil {
		return
	}
	for _, all := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range all {
			seen := s.running[all[i].ContainerID]
			if r := all[i].State.Running; r != nil && !seen.IsZero() && seen.Sub(r.StartedAt.Time).Abs() > maxDelay {
				r.StartedAt = metav1.NewTime(seen)
			}
		}
	}
}

// leaving reports whether the pod was being deleted when it was first seen.
func (t *trace) leaving(pod *v1.Pod) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.times[pod.UID]
	return s != nil && s.leaving
}

// scheduled returns when the pod was first seen with a node, zero if it has none.
func (t *trace) scheduled(pod *v1.Pod) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.times[pod.UID]; s != nil {
		return s.scheduled
	}
	return time.Time{}
}

// started reports whether every container was started.
func started(pod *v1.Pod) bool {
	for _, cs := range pod.Status.ContainerStatuses {
		if cs.State.Running == nil && podspec.LastTermination(cs) == nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}
