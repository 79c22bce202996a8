package runonce_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
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

func (m *measures) WorkerStarted(pod *v1.Pod, after time.Duration) {
	m.add(pod, "worker after %s", after)
}

func (m *measures) Synced(pod *v1.Pod, of runonce.SyncType, took time.Duration) {
	m.add(pod, "%s in %s", of, took)
}

func (m *measures) Started(pod *v1.Pod, after time.Duration) { m.add(pod, "started after %s", after) }
func (m *measures) Restarted(pod *v1.Pod, times int)         { m.add(pod, "restarted %d", times) }
func (m *measures) Preempted(pod *v1.Pod, lacked v1.ResourceName) {
	m.add(pod, "preempted for %q", lacked)
}
func (m *measures) Evicted(pod *v1.Pod, signal string) { m.add(pod, "evicted by %s", signal) }

// TestMeter: what the kubelet would have measured, counted from when the pods were seen.
func TestMeter(t *testing.T) {
	t.Parallel()
	evicted := with(v1.PodFailed, ended(137))
	evicted.Reason, evicted.Message = "Evicted", `Usage of EmptyDir volume "tmp" exceeds the limit "1Mi". `
	slow := script{syncTakes: 2 * time.Second, timeline: []moment{{0, with(v1.PodPending)}, {time.Second, running()}, {2 * time.Second, with(v1.PodRunning, restarted(up(), 2))}}}
	before := running()
	for name, tt := range map[string]struct {
		script  script
		existed bool
		want    []string
	}{
		"starts":  {slow, false, []string{"web worker after 1m0s", "web create in 2s", "web started after 1m3s", "web restarted 2"}},
		"ran":     {script{before: &before, timeline: []moment{{0, running()}}}, true, []string{"web worker after 1m0s", "web create in 0s"}},
		"evicted": {script{timeline: []moment{{0, with(v1.PodPending)}, {time.Second, evicted}}}, false, []string{"web worker after 1m0s", "web create in 0s", "web evicted by emptydirfs.limit", "web terminated in 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, rt := &measures{}, &fake{scripts: map[string]script{"web": tt.script}}
				plan := admitted(newPod("web", v1.RestartPolicyNever))
				plan.Decisions[0].Running = tt.existed
				runonce.Run(t.Context(), rt, plan, runonce.Options{Settle: 5 * time.Second, Start: time.Now().Add(-time.Hour), Seen: time.Now().Add(-time.Minute), Meter: m})
				got := slices.DeleteFunc(slices.Compact(m.all), func(line string) bool { return line == "web sync in 0s" || line == "web sync in 2s" })
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestMeterPreempted: running pods that were stopped for others count, unless the stop has failed.
func TestMeterPreempted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		victim := func(name string, lacked v1.ResourceName) admit.Decision {
			d := admit.PreemptedBy(newPod(name, ""), newPod("web", ""))
			d.Lacked = lacked
			return d
		}
		plan := admitted(newPod("web", ""))
		plan.Decisions = append(plan.Decisions, victim("a", v1.ResourceCPU), victim("b", ""), victim("stuck", v1.ResourceCPU))
		m, rt := &measures{}, &fake{scripts: map[string]script{"web": runs(), "stuck": {stop: always(errBroken)}}}
		runonce.Run(t.Context(), rt, plan, runonce.Options{Meter: m})
		slices.Sort(m.all)
		got := slices.DeleteFunc(m.all, func(line string) bool { return !strings.Contains(line, "preempted") })
		if diff := cmp.Diff([]string{`a preempted for "cpu"`, `b preempted for ""`}, got); diff != "" {
			t.Error(diff)
		}
	})
}
