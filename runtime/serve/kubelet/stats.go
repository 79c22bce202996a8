package kubelet

import (
	"context"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
)

// summary answers with what the machine, the pods and their containers have used.
func (s *server) summary(w http.ResponseWriter, r *http.Request) {
	used, err := s.used(r.Context(), os.DirFS("/"))
	if err != nil {
		s.fail(w, r, http.StatusInternalServerError, err)
		return
	}
	s.writeJSON(w, r, used)
}

// used returns what the machine whose root is fsys, the pods and their containers have used of processors and memory.
// Pods and containers that do not run are left out.
func (s *server) used(ctx context.Context, fsys fs.FS) (*stats.Summary, error) {
	pods, err := s.Pods.GetPods(ctx)
	if err != nil {
		return nil, err
	}
	machine, err := MachineUsage(fsys)
	if err != nil {
		return nil, err
	}
	all := &stats.Summary{
		Node: stats.NodeStats{NodeName: s.Node, StartTime: metav1.NewTime(s.Started)},
		Pods: make([]stats.PodStats, 0, len(pods)),
	}
	all.Node.CPU, all.Node.Memory = statsOf(machine)
	for _, pod := range pods {
		if of := s.podStats(ctx, pod); len(of.Containers) > 0 {
			all.Pods = append(all.Pods, of)
		}
	}
	return all, nil
}

// podStats returns the statistics of a pod. What has ended meanwhile has none.
func (s *server) podStats(ctx context.Context, pod *v1.Pod) stats.PodStats {
	of := stats.PodStats{PodRef: stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
	if pod.Status.StartTime != nil {
		of.StartTime = *pod.Status.StartTime
	}
	used, containers, err := s.Runtime.Used(ctx, pod)
	if err != nil {
		s.Log.WarnContext(ctx, "could not read what the pod has used", "pod", podspec.FullName(pod), "error", err)
		return of
	}
	of.CPU, of.Memory = statsOf(used)
	for _, cs := range podspec.AllStatuses(pod.Status) {
		if used, ok := containers[cs.Name]; ok && cs.State.Running != nil {
			c := stats.ContainerStats{Name: cs.Name, StartTime: cs.State.Running.StartedAt}
			c.CPU, c.Memory = statsOf(used)
			of.Containers = append(of.Containers, c)
		}
	}
	return of
}

func statsOf(u podusage.Sample) (*stats.CPUStats, *stats.MemoryStats) {
	now := metav1.Now()
	return &stats.CPUStats{Time: now, UsageCoreNanoSeconds: new(uint64(u.CPU.Nanoseconds()))},
		&stats.MemoryStats{Time: now, UsageBytes: &u.Memory, WorkingSetBytes: &u.WorkingSet}
}

// resourceMetrics answers with the same as metrics, for metrics-server (pkg/kubelet/metrics/collectors,
// resourceMetricsCollector).
func (s *server) resourceMetrics(w http.ResponseWriter, r *http.Request) {
	used, err := s.used(r.Context(), os.DirFS("/"))
	if err != nil {
		s.fail(w, r, http.StatusInternalServerError, err)
		return
	}
	format := expfmt.Negotiate(r.Header)
	w.Header().Set("Content-Type", string(format))
	out := expfmt.NewEncoder(w, format)
	for _, family := range resourceMetrics(used) {
		if out.Encode(family) != nil {
			return // the client has gone
		}
	}
}

// resourceMetrics returns the families of metrics by name.
func resourceMetrics(s *stats.Summary) []*dto.MetricFamily {
	m := metrics{}
	m.addUsage("node", s.Node.CPU, s.Node.Memory)
	for _, pod := range s.Pods {
		// The second label is the pod's name: virtual-kubelet's own tests rely on it.
		name, namespace := label("pod", pod.PodRef.Name), label("namespace", pod.PodRef.Namespace)
		for _, c := range pod.Containers {
			ofContainer := []*dto.LabelPair{label("container", c.Name), name, namespace}
			m.addUsage("container", c.CPU, c.Memory, ofContainer...)
			m.add("container_start_time_seconds", metric{float64(c.StartTime.UnixNano()) / 1e9, metav1.Time{}}, ofContainer...)
		}
		m.addUsage("pod", pod.CPU, pod.Memory, namespace, name)
	}
	m.add("resource_scrape_error", metric{})
	return slices.SortedFunc(maps.Values(m), func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// metrics are families of metrics by their names.
type metrics map[string]*dto.MetricFamily

// metric is a value of one, at a time that may be zero.
type metric struct {
	value float64
	at    metav1.Time
}

func label(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

func (m metrics) addUsage(of string, cpu *stats.CPUStats, memory *stats.MemoryStats, labels ...*dto.LabelPair) {
	m.add(of+"_cpu_usage_seconds_total", metric{float64(*cpu.UsageCoreNanoSeconds) / 1e9, cpu.Time}, labels...)
	m.add(of+"_memory_working_set_bytes", metric{float64(*memory.WorkingSetBytes), memory.Time}, labels...)
}

// add adds a metric. A name that ends in _total is that of a counter.
func (m metrics) add(name string, v metric, labels ...*dto.LabelPair) {
	counter := strings.HasSuffix(name, "_total")
	if m[name] == nil {
		m[name] = &dto.MetricFamily{Name: &name, Type: dto.MetricType_GAUGE.Enum()}
		if counter {
			m[name].Type = dto.MetricType_COUNTER.Enum()
		}
	}
	sample := &dto.Metric{Label: labels}
	if !v.at.IsZero() {
		sample.TimestampMs = new(v.at.UnixMilli())
	}
	if counter {
		sample.Counter = &dto.Counter{Value: &v.value}
	} else {
		sample.Gauge = &dto.Gauge{Value: &v.value}
	}
	m[name].Metric = append(m[name].Metric, sample)
}
