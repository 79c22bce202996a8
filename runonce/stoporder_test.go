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
				runonce.InStopOrder(ctx, pods, func(ctx context.Context, i int) {
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
