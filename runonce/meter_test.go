package runonce_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce"
)

// measures are what a meter was told, in order.
type measures struct {
	mu  sync.Mutex
	all []string
}

func (m *measures) add(pod *v1.Pod, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, pod.Name+" "+fmt.Sprintf(format, args...))
}

func (m *measures) WorkerStarted(pod *v1.Pod, after time.Duration) { m.add(pod, "worker after %s", after) }
func (m *measures) Synced(pod *v1.Pod, of runonce.SyncType, took time.Duration) {
	m.add(pod, "%s in %s", of, took)
}
func (m *measures) Started(pod *v1.Pod, after time.Duration)          { m.add(pod, "started after %s", after) }
func (m *measures) Restarted(pod *v1.Pod, times int)                  { m.add(pod, "restarted %d", times) }
func (m *measures) Preempted(pod *v1.Pod, lacked v1.ResourceName)     { m.add(pod, "preempted for %q", lacked) }
func (m *measures) Evicted(pod *v1.Pod, signal string)                { m.add(pod, "evicted by %s", signal) }

