package provider

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/runonce/runonce/internal/podspec"
)

// GetStatsSummary returns what the machine, the pods and their containers have used of processors and memory.
// A container that does not run is left out.
func (p *Provider) GetStatsSummary(ctx context.Context) (*stats.Summary, error) {
	pods, err := p.GetPods(ctx)
	if err != nil {
		return nil, err
	}
	node, err := machineUsage(os.DirFS("/"))
	if err != nil {
		return nil, err
	}
	s := &stats.Summary{Node: stats.NodeStats{NodeName: p.node, StartTime: metav1.NewTime(p.started)}}
	s.Node.CPU, s.Node.Memory = node.stats()
	for _, pod := range pods {
		if of := p.podStats(ctx, pod); len(of.Containers) > 0 {
			s.Pods = append(s.Pods, of)
		}
	}
	return s, nil
}

// podStats returns the statistics of the pod, which are the sums of those of its containers. What has
// ended meanwhile has none.
func (p *Provider) podStats(ctx context.Context, pod *v1.Pod) stats.PodStats {
	of := stats.PodStats{PodRef: stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
	if pod.Status.StartTime != nil {
		of.StartTime = *pod.Status.StartTime
	}
	pids, err := p.runtime.Processes(ctx, pod)
	if err != nil {
		p.log.WarnContext(ctx, "could not look for the processes of the pod", "pod", podspec.FullName(pod), "error", err)
	}
	var sum usage
	for _, cs := range podspec.AllStatuses(pod.Status) {
		pid, running := pids[cs.Name]
		if !running || cs.State.Running == nil {
			continue
		}
		used, err := p.usage(pid)
		if err != nil {
			p.log.DebugContext(ctx, "could not read what the container has used", "pod", podspec.FullName(pod), "container", cs.Name, "error", err)
			continue
		}
		sum.add(used)
		c := stats.ContainerStats{Name: cs.Name, StartTime: cs.State.Running.StartedAt}
		c.CPU, c.Memory = used.stats()
		of.Containers = append(of.Containers, c)
	}
	of.CPU, of.Memory = sum.stats()
	return of
}

func (u usage) stats() (*stats.CPUStats, *stats.MemoryStats) {
	now := metav1.Now()
	return &stats.CPUStats{Time: now, UsageCoreNanoSeconds: new(uint64(u.cpu.Nanoseconds()))},
		&stats.MemoryStats{Time: now, UsageBytes: &u.memory, WorkingSetBytes: &u.workingSet}
}

// GetMetricsResource returns the same as metrics for metrics-server (pkg/kubelet/metrics/collectors,
// resourceMetricsCollector).
func (p *Provider) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
	s, err := p.GetStatsSummary(ctx)
	if err != nil {
		return nil, err
	}
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
	return slices.SortedFunc(maps.Values(m), func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) }), nil
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
