package runonce_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
)

// TestInStopOrder: pods are stopped before those on which they depend, all others at once, and a deadline leaves
// time for each step.
func TestInStopOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit time.Duration
		want  map[string]string // when the stop begins, and when its time is over
	}{
		{0, map[string]string{"test": "0s -", "web": "1m0s -", "tools": "0s -", "db": "2m0s -"}},
		{30 * time.Second, map[string]string{"test": "0s 10s", "web": "10s 20s", "tools": "0s 15s", "db": "20s 30s"}},
		{10 * time.Minute, map[string]string{"test": "0s 3m20s", "web": "1m0s 5m30s", "tools": "0s 5m0s", "db": "2m0s 10m0s"}},
	} {
		t.Run(c.limit.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var pods []*v1.Pod
				for name, on := range map[string]string{"test": "web", "web": "db:running", "tools": "db", "db": "gone"} {
					pod := newPod(name, v1.RestartPolicyAlways)
					pod.Annotations = map[string]string{podspec.AnnotationDependsOn: on}
					pods = append(pods, pod)
				}
				ctx, begin := t.Context(), time.Now()
				if c.limit > 0 {
					limited, cancel := context.WithTimeout(ctx, c.limit)
					defer cancel()
					ctx = limited
				}
				var mu sync.Mutex
				got := map[string]string{}
				runonce.InStopOrder(ctx, pods, nil, func(ctx context.Context, i int) {
					at, limit := time.Since(begin), "-"
					if end, ok := ctx.Deadline(); ok {
						limit = end.Sub(begin).String()
					}
					mu.Lock()
					got[pods[i].Name] = fmt.Sprint(at, " ", limit)
					mu.Unlock()
					select {
					case <-time.After(time.Minute):
					case <-ctx.Done():
					}
				})
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestStopGroups: pods are stopped by the groups of their priorities, unless they have to wait for one of a later group.
func TestStopGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		groups, err := runonce.ParseStopGroups("2000000000=10s, 0=30s,1000=20s")
		if err != nil {
			t.Fatal(err)
		}
		var pods []*v1.Pod
		for _, p := range []struct {
			name, on string
			priority int32
		}{{"low", "", -5}, {"web", "", 999}, {"db", "", 1000}, {"dns", "", 2_000_001_000}, {"log", "", 2_000_000_000}, {"needed", "", 0}, {"needs", "needed", 2_000_000_000}} {
			pod := newPod(p.name, v1.RestartPolicyAlways)
			pod.Spec.Priority = &p.priority
			if p.on != "" {
				pod.Annotations = map[string]string{podspec.AnnotationDependsOn: p.on}
			}
			pods = append(pods, pod)
		}
		begin := time.Now()
		var mu sync.Mutex
		got := map[string]string{}
		runonce.InStopOrder(t.Context(), pods, groups, func(_ context.Context, i int) {
			mu.Lock()
			got[pods[i].Name] = fmt.Sprint(time.Since(begin), " ", groups.Grace(pods[i]))
			mu.Unlock()
			time.Sleep(time.Minute)
		})
		want := map[string]string{
			"low": "0s 30s", "web": "0s 30s", "db": "1m0s 20s", "dns": "2m0s 10s", "log": "2m0s 10s", "needs": "2m0s 10s", "needed": "3m0s 30s",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if limit := runonce.StopGroups(nil).Grace(pods[0]); limit != 0 {
			t.Errorf("limit without groups: %s", limit)
		}
	})
}

func TestParseStopGroups(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":              `"": must be PRIORITY=DURATION`,
		"0":             `"0": must be PRIORITY=DURATION`,
		"high=10s":      `"high=10s": must be PRIORITY=DURATION`,
		"3000000000=1s": `"3000000000=1s": must be PRIORITY=DURATION`,
		"0=10":          `"0=10": must be PRIORITY=DURATION, of at least 1s`,
		"0=-1s":         `"0=-1s": must be PRIORITY=DURATION, of at least 1s`,
		"0=1s,0=2s":     `"0=2s": there are two durations for this priority`,
	} {
		if _, err := runonce.ParseStopGroups(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
