package metrics_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/metrics"
)

// written returns the file of the metrics.
func written(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "run.prom")
	if err := m.Write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	return string(text)
}

// lines returns the lines of the text that begin with one of the names and have a value other than 0.
func lines(text string, names ...string) (all []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(line, name) }) && !strings.HasSuffix(line, " 0") {
			all = append(all, line)
		}
	}
	return all
}

func pod(name string, containers int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.PodSpec{Containers: make([]v1.Container, containers)}}
}

// everything returns metrics with something in each series.
func everything(kubelets bool) *metrics.Metrics {
	m := metrics.New(time.Unix(1900000000, 500_000_000), kubelets)
	m.WorkerStarted(pod("a", 3), 20*time.Millisecond)
	m.Synced(pod("a", 3), runonce.SyncCreate, 300*time.Millisecond)
	m.Synced(pod("a", 3), runonce.SyncSync, time.Millisecond)
	m.Synced(pod("a", 3), runonce.SyncTerminated, time.Millisecond)
	m.Started(pod("a", 3), 2500*time.Millisecond)
	m.Restarted(pod("a", 3), 2)
	m.Restarted(pod("b", 1), 1)
	m.Preempted(pod("b", 1), v1.ResourceMemory)
	m.Preempted(pod("b", 1), "")
	m.Evicted(pod("b", 1), "emptydirfs.limit")
	m.Step("", "pull docker.io/library/web:1", time.Time{}, 7*time.Second)
	m.Step("", "start main", time.Time{}, time.Second)
	m.Concluded([]runonce.Result{{Pod: pod("a", 3), Outcome: runonce.Ready}, {Pod: pod("b", 1), Outcome: runonce.Preempted}, {Pod: pod("c", 1), Outcome: runonce.Ready}}, 3, 4250*time.Millisecond)
	return m
}

// TestMetrics: every series, as Prometheus reads it.
func TestMetrics(t *testing.T) {
	t.Parallel()
	text := written(t, everything(false))
	want := []string{
		`kubelet_containers_per_pod_count_bucket{le="4"} 1`,
		`kubelet_containers_per_pod_count_bucket{le="8"} 1`,
		`kubelet_containers_per_pod_count_bucket{le="16"} 1`,
		`kubelet_containers_per_pod_count_bucket{le="+Inf"} 1`,
		`kubelet_containers_per_pod_count_sum 3`,
		`kubelet_containers_per_pod_count_count 1`,
		`kubelet_evictions{eviction_signal="emptydirfs.limit"} 1`,
		`kubelet_pod_start_duration_seconds_sum 2.5`,
		`kubelet_pod_start_duration_seconds_count 1`,
		`kubelet_pod_worker_duration_seconds_count{operation_type="create"} 1`,
		`kubelet_pod_worker_duration_seconds_count{operation_type="sync"} 1`,
		`kubelet_pod_worker_duration_seconds_count{operation_type="terminated"} 1`,
		`kubelet_pod_worker_start_duration_seconds_sum 0.02`,
		`kubelet_preemptions{preemption_signal=""} 1`,
		`kubelet_preemptions{preemption_signal="memory"} 1`,
		`runonce_container_restarts_total 3`,
		`runonce_image_pull_duration_seconds_sum 7`,
		`runonce_image_pull_duration_seconds_count 1`,
		`runonce_pods{outcome="Preempted"} 1`,
		`runonce_pods{outcome="Ready"} 2`,
		`runonce_run_duration_seconds 4.25`,
		`runonce_run_exit_code 3`,
		`runonce_run_start_time_seconds 1.9000000005e+09`,
	}
	got := lines(text, "kubelet_containers", "kubelet_evictions", "kubelet_pod_start_duration_seconds_sum", "kubelet_pod_start_duration_seconds_count",
		"kubelet_pod_worker_duration_seconds_count", "kubelet_pod_worker_start_duration_seconds_sum", "kubelet_preemptions", "runonce_container",
		"runonce_image_pull_duration_seconds_sum", "runonce_image_pull_duration_seconds_count", "runonce_pods", "runonce_run")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(text, `runonce_pods{outcome="Failed"} 0`) {
		t.Error("an outcome that no pod has is absent")
	}
	for _, bucket := range []string{`kubelet_pod_worker_start_duration_seconds_bucket{le="0.005"} 0`, `kubelet_pod_start_duration_seconds_bucket{le="3600"} 1`} {
		if !strings.Contains(text, bucket+"\n") {
			t.Errorf("no %s", bucket)
		}
	}
	text = written(t, everything(true))
	if got := lines(text, "kubelet_", "runonce_image"); len(got) > 0 {
		t.Errorf("what kubelets measure: %s", got)
	}
	if got := lines(text, "runonce_run_exit_code", "runonce_container"); len(got) != 2 {
		t.Errorf("on a cluster: %s", got)
	}
}

// TestLint: promtool finds nothing to complain of, but for two names that are the kubelet's.
func TestLint(t *testing.T) {
	t.Parallel()
	text := written(t, everything(false))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"kubelet_preemptions", "kubelet_evictions"} // counters without _total
	problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool { return slices.Contains(known, p.Metric) })
	if len(problems) > 0 {
		t.Error(problems)
	}
}

// TestProgress: the pods of a plan by what is known of them so far. Results replace that.
func TestProgress(t *testing.T) {
	t.Parallel()
	m := metrics.New(time.Now(), false)
	for _, e := range []runonce.Progress{
		{Pod: pod("a", 1), State: "Starting"}, {Pod: pod("b", 1), State: "Pulling"}, {Pod: pod("a", 1), State: "Ready"}, {Pod: pod("c", 1), State: "Retrying"},
	} {
		m.Progress(e)
	}
	if diff := cmp.Diff([]string{`runonce_pods{outcome="Ready"} 1`, `runonce_pods{outcome="Waiting"} 2`}, lines(written(t, m), "runonce_pods", "runonce_run_exit")); diff != "" {
		t.Error(diff)
	}
	m.Concluded([]runonce.Result{{Pod: pod("d", 1), Outcome: runonce.Failed}}, 1, time.Second)
	if diff := cmp.Diff([]string{`runonce_pods{outcome="Failed"} 1`, `runonce_run_exit_code 1`}, lines(written(t, m), "runonce_pods", "runonce_run_exit")); diff != "" {
		t.Error(diff)
	}
}

// TestCheck: what cannot be written is known before, and nothing is left of the try.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := metrics.Check(filepath.Join(dir, "new.prom")); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "none", "x.prom"), "/dev/null"} {
		if err := metrics.Check(path); err == nil {
			t.Errorf("%s can be written", path)
		}
	}
}
