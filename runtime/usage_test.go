package runtime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podusage"
)

// TestPodUsage: containers that run use what their cgroups have used in the interval. Others, and pods without any, are
// left out.
func TestPodUsage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.cgroups.Processors, n.cgroups.WorkingSet = 1.5, 7<<20
		pod, ended := testPod(v1.RestartPolicyNever, "sleep", "exit 0", "sleep"), testPod(v1.RestartPolicyNever, "exit 0")
		ended.UID = "uid-ended"
		p := n.pods(t.Context(), t)
		for _, pod := range []*v1.Pod{pod, ended} {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		begin := time.Now()
		got, err := p.Usage(t.Context(), []*v1.Pod{ended, pod}, 2*time.Second)
		if err != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		each := podusage.Usage{CPUMillicores: 1500, MemoryBytes: 7 << 20}
		want := map[types.UID]podusage.Pod{pod.UID: {
			Usage:      podusage.Usage{CPUMillicores: 3000, MemoryBytes: 14 << 20},
			Containers: []podusage.Container{{Name: pod.Spec.Containers[0].Name, Usage: each}, {Name: pod.Spec.Containers[2].Name, Usage: each}},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if _, err := p.Usage(t.Context(), []*v1.Pod{ended}, time.Hour); err != nil || time.Since(begin) > time.Minute {
			t.Errorf("nothing runs: after %s: %v", time.Since(begin), err)
		}
		interrupted, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Usage(interrupted, []*v1.Pod{pod}, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
	})
}

// TestTotals: a container that runs has used what its cgroup says, and one that has ended what its exit says, also while
// its next instance is about to start.
func TestTotals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.cgroups.Total, n.engine.Used = podusage.Total{CPUSeconds: new(3.0)}, podusage.Total{PeakMemoryBytes: new(int64(7))}
		pod := testPod(v1.RestartPolicyNever, "sleep", "exit 0")
		p := n.pods(t.Context(), t)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := map[string]podusage.Total{
			pod.Spec.Containers[0].Name: {CPUSeconds: new(3.0)},
			pod.Spec.Containers[1].Name: {PeakMemoryBytes: new(int64(7)), OOMKills: new(int64)},
		}
		if diff := cmp.Diff(want, p.Totals(t.Context(), pod)); diff != "" {
			t.Error(diff)
		}
	})
}
