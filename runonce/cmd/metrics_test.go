package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWatchMetrics: the metrics of a watch follow what happens to its pods, and its plans. They stay when it ends.
func TestWatchMetrics(t *testing.T) {
	t.Parallel()
	m, dir := newMemory(t), t.TempDir()
	file := filepath.Join(t.TempDir(), "watch.prom")
	has := func(lines ...string) func() bool {
		return func() bool {
			text, err := os.ReadFile(file)
			for _, line := range lines {
				if !strings.Contains(string(text), line+"\n") {
					return false
				}
			}
			return err == nil
		}
	}
	write := func(name, args string) {
		t.Helper()
		text, err := os.ReadFile(manifest(t, name, "Always", args))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".yaml"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("web", "[sleep]")
	w := watchPaths(t, m, dir, "--until", "ready", "--metrics", file)
	w.await(t, "a pod", has(`runonce_pods{outcome="Ready"} 1`, "runonce_run_exit_code 0", "kubelet_pod_worker_start_duration_seconds_count 1"))
	if err := m.kill(t.Context(), "default/web", "main", 7); err != nil {
		t.Fatal(err)
	}
	w.await(t, "a restart", has("runonce_container_restarts_total 1", `runonce_pods{outcome="Ready"} 1`))
	write("job", "[sleep]")
	w.await(t, "another plan", has(`runonce_pods{outcome="Ready"} 2`, "kubelet_containers_per_pod_count_count 3"))
	w.end(t, syscall.SIGTERM, 0)
	if !has("runonce_run_exit_code 0", `runonce_pods{outcome="Ready"} 2`, "runonce_container_restarts_total 1")() {
		text, err := os.ReadFile(file)
		t.Errorf("%v\n%s", err, text)
	}
	if got := invoke(t, m, "watch", "--node", nodeFile(), "--metrics", dir, dir); got.code != 2 || !strings.Contains(got.stderr, "--metrics: ") {
		t.Errorf("%+v", got)
	}
}
