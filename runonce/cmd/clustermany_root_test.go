package cmd_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/runonce/runonce/internal/testing/testcluster"
)

// clusterMany: of 1,000 pods in one run there is one watch, few requests at a time, and few in all.
func clusterMany(t *testing.T, c onCluster) {
	const n = 1000
	if err := c.Simulate(t.Context(), n/testcluster.PodsPerNode+1); err != nil {
		t.Fatal(err)
	}
	var all, watches, now, most atomic.Int64
	m := c.through(t, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if r.URL.Query().Get("watch") != "" {
			watches.Add(1)
		} else {
			all.Add(1)
			for count := now.Add(1); count > most.Load(); {
				most.Store(count)
			}
			defer now.Add(-1)
		}
		forward.ServeHTTP(w, r)
	})
	var pods []string
	for i := range n {
		pod := fmt.Sprintf(sleeper, fmt.Sprintf("one-of-many-%d", i), "sleep 5m", "")
		pods = append(pods, strings.Replace(pod, "spec:", "spec:\n  nodeSelector: {simulated: \"true\"}\n  tolerations: [{key: simulated}]", 1))
	}
	dir := podDir(t, strings.Join(pods, "---\n"))
	for _, r := range m.begin("run", "-o", "json", dir).end(t, 0).Results {
		if r.Outcome != "Running" {
			t.Errorf("%+v", r)
		}
	}
	// A dry run and a creation for each pod; a server on a busy machine ends a watch now and then.
	if all.Load() > 2*n+20 || most.Load() > 40 || watches.Load() > 10 {
		t.Errorf("%d requests, %d at a time, %d watches", all.Load(), most.Load(), watches.Load())
	}
}
