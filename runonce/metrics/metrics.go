// Package metrics measures runs and writes what it has measured for Prometheus.
package metrics

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runonce"
)

// waiting is the outcome of pods that have none yet.
const waiting = "Waiting"

// outcomes are the values of the label of that name. Each has a series, also with the value 0.
var outcomes = []runonce.Outcome{
	waiting, runonce.Running, runonce.Ready, runonce.Succeeded, runonce.Failed, runonce.TimedOut, runonce.Rejected, runonce.Preempted,
	runonce.Invalid, runonce.Canceled, runonce.Removed,
}

// The buckets of the kubelet's histograms (pkg/kubelet/metrics), in seconds. Images are pulled as long as pods start.
var (
	startBuckets = []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	countBuckets = prometheus.ExponentialBuckets(1, 2, 5)
)

// Metrics are those of a run, or of several in turn. It is a runonce.Meter, and safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	kubelet  kubelet

	pods                    *prometheus.GaugeVec
	restarts                prometheus.Counter
	pulls                   prometheus.Histogram
	start, duration, exitAs prometheus.Gauge

	writing sync.Mutex
	mu      sync.Mutex                 // guards the rest
	known   map[string]runonce.Outcome // of the pods that Concluded and Progress have told of
}

// kubelet are the kubelet's series that mean the same of a run.
type kubelet struct {
	worker                        *prometheus.HistogramVec
	workerStart, podStart, perPod prometheus.Histogram
	preemptions, evictions        *prometheus.CounterVec
}

// New returns the metrics of a run that began then. Those of a kubelet are among them unless kubelets run the pods.
func New(began time.Time, kubelets bool) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), known: map[string]runonce.Outcome{},
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "runonce_pods", Help: "Number of pods of the last plan by their outcome, Waiting if they have none yet.",
		}, []string{"outcome"}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "runonce_container_restarts_total", Help: "Cumulative number of restarts of containers.",
		}),
		pulls: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "runonce_image_pull_duration_seconds", Help: "Duration in seconds of pulls of images, also of those that failed.", Buckets: startBuckets,
		}),
		start: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "runonce_run_start_time_seconds", Help: "Start time of the run since the epoch in seconds.",
		}),
		duration: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "runonce_run_duration_seconds", Help: "Duration in seconds of the run, or of a watch until the pods of its last plan were at their goal or had ended.",
		}),
		exitAs: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "runonce_run_exit_code", Help: "Exit code of the run, or the one that stands for the pods of a watch.",
		}),
		kubelet: newKubelet(),
	}
	m.registry.MustRegister(m.pods, m.restarts, m.start)
	if !kubelets {
		k := m.kubelet
		m.registry.MustRegister(m.pulls, k.worker, k.workerStart, k.podStart, k.perPod, k.preemptions, k.evictions)
	}
	m.start.Set(float64(began.UnixMilli()) / 1000)
	return m
}

// newKubelet makes the kubelet's series, with its names, help and buckets.
func newKubelet() kubelet {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_" + name, Help: help, Buckets: buckets})
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help}, []string{label})
	}
	return kubelet{
		worker: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds", Buckets: prometheus.DefBuckets,
			Help: "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
		}, []string{"operation_type"}),
		workerStart: histogram("pod_worker_start_duration_seconds", "Duration in seconds from kubelet seeing a pod to starting a worker.", prometheus.DefBuckets),
		podStart:    histogram("pod_start_duration_seconds", "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run", startBuckets),
		perPod:      histogram("containers_per_pod_count", "The number of containers per pod.", countBuckets),
		preemptions: counter("preemptions", "Cumulative number of pod preemptions by preemption resource", "preemption_signal"),
		evictions:   counter("evictions", "Cumulative number of pod evictions by eviction signal", "eviction_signal"),
	}
}

// WorkerStarted is called when a pod is synced for the first time.
func (m *Metrics) WorkerStarted(pod *v1.Pod, after time.Duration) {
	m.kubelet.workerStart.Observe(after.Seconds())
	m.kubelet.perPod.Observe(float64(len(pod.Spec.Containers)))
}

// Synced is called after each sync of a pod.
func (m *Metrics) Synced(_ *v1.Pod, of runonce.SyncType, took time.Duration) {
	m.kubelet.worker.WithLabelValues(string(of)).Observe(took.Seconds())
}

// Started is called when a pod runs.
func (m *Metrics) Started(_ *v1.Pod, after time.Duration) {
	m.kubelet.podStart.Observe(after.Seconds())
}

// Restarted is called when containers of a pod were restarted.
func (m *Metrics) Restarted(_ *v1.Pod, times int) { m.restarts.Add(float64(times)) }

// Preempted is called when a running pod was stopped for another one.
func (m *Metrics) Preempted(_ *v1.Pod, lacked v1.ResourceName) {
	m.kubelet.preemptions.WithLabelValues(string(lacked)).Inc()
}

// Evicted is called when a pod has ended because of what it uses.
func (m *Metrics) Evicted(_ *v1.Pod, signal string) {
	m.kubelet.evictions.WithLabelValues(signal).Inc()
}

// Step is called after each step of a pod's start, as runtime.Options.Trace.
func (m *Metrics) Step(_ types.UID, name string, _ time.Time, elapsed time.Duration) {
	if strings.HasPrefix(name, "pull ") {
		m.pulls.Observe(elapsed.Seconds())
	}
}

// Progress is called with every event of a pod.
func (m *Metrics) Progress(e runonce.Progress) {
	outcome := runonce.Outcome(waiting)
	for _, o := range outcomes {
		if string(o) == e.State {
			outcome = o
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[key(e.Pod)] = outcome
}

// Concluded is called with the results of a plan, the exit code that stands for them, and the time that it took. They
// replace all that was known of pods.
func (m *Metrics) Concluded(results []runonce.Result, exitCode int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.known)
	for i := range results {
		if pod := results[i].Pod; pod != nil {
			m.known[key(pod)] = results[i].Outcome
		}
	}
	m.Ended(exitCode, took)
}

// key tells pods apart: an invalid one has no UID, and of one name there may be an old and a new one.
func key(pod *v1.Pod) string { return cmp.Or(string(pod.UID), podspec.FullName(pod)) }

// Ended is called with the exit code of a run that has no results.
func (m *Metrics) Ended(exitCode int, took time.Duration) {
	m.exitAs.Set(float64(exitCode))
	m.duration.Set(took.Seconds())
	_ = m.registry.Register(m.exitAs) // an error says that it is there
	_ = m.registry.Register(m.duration)
}

// count counts the pods by their outcomes, when that is asked for: a plan may have thousands, and each many events.
func (m *Metrics) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := map[runonce.Outcome]int{}
	for _, outcome := range m.known {
		count[outcome]++
	}
	for _, outcome := range outcomes {
		m.pods.WithLabelValues(string(outcome)).Set(float64(count[outcome]))
	}
}

// mode is that of the file: its reader is another user.
const mode = 0o644

// Check returns an error if metrics could not be written to the file.
func Check(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	f, err := atomicfile.Create(path, process.FileMode(mode))
	if err != nil {
		return err
	}
	return f.Abort()
}

// Write puts the metrics in the place of the file, in the text format. A reader sees all of them or those before.
func (m *Metrics) Write(path string) error {
	m.writing.Lock() // what is written last is what was measured last
	defer m.writing.Unlock()
	m.count()
	families, err := m.registry.Gather()
	if err != nil {
		return fmt.Errorf("collecting metrics: %w", err)
	}
	f, err := atomicfile.Create(path, process.FileMode(mode))
	if err != nil {
		return err
	}
	defer func() { _ = f.Abort() }()
	encoder := expfmt.NewEncoder(f, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	return f.Commit()
}
