package kubelet

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/probe"
)

const (
	// scrapeTimeout bounds how long the pods may take to be listed for metrics.
	scrapeTimeout = 10 * time.Second
	// maxScrapes is how many clients may ask for metrics at once.
	maxScrapes = 4
)

// The series of a kubelet that follow from its pods (pkg/kubelet/metrics).
var (
	nodeName          = prometheus.NewDesc("kubelet_node_name", "The node's name. The count is always 1.", []string{"node"}, nil)
	runningPods       = prometheus.NewDesc("kubelet_running_pods", "Number of pods that have a running container", nil, nil)
	runningContainers = prometheus.NewDesc("kubelet_running_containers", "Number of containers that exist", []string{"container_state"}, nil)
)

// metricsHandler returns what answers with the metrics of the collectors.
func metricsHandler(all ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(all...)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// scraped returns the pods for a collector. If there are none to have, the metric is the error.
func (s *server) scraped(to chan<- prometheus.Metric, metric *prometheus.Desc) (pods []*v1.Pod, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	pods, err := s.Pods.GetPods(ctx)
	if err != nil {
		to <- prometheus.NewInvalidMetric(metric, err)
	}
	return pods, err == nil
}

// podCollector counts pods when it is asked.
type podCollector struct{ s *server }

func (c podCollector) Describe(to chan<- *prometheus.Desc) {
	to <- nodeName
	to <- runningPods
	to <- runningContainers
}

func (c podCollector) Collect(to chan<- prometheus.Metric) {
	pods, ok := c.s.scraped(to, runningPods)
	if !ok {
		return
	}
	running, states := 0, map[string]int{"running": 0, "exited": 0}
	for _, pod := range pods {
		if podspec.AnyRuns(pod.Status) {
			running++
		}
		for _, cs := range podspec.AllStatuses(pod.Status) {
			if state := stateOf(cs.State); state != "" {
				states[state]++
			}
		}
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(nodeName, 1, c.s.Node)
	gauge(runningPods, running)
	for state, n := range states {
		gauge(runningContainers, n, state)
	}
}

// probeTotal is the kubelet's (pkg/kubelet/prober ProberResults).
var probeTotal = prometheus.NewDesc("prober_probe_total", "Cumulative number of a liveness, readiness or startup probe for a container by result.",
	[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}, nil)

// probeCollector counts the results of the probes that this process runs.
type probeCollector struct{ s *server }

func (probeCollector) Describe(to chan<- *prometheus.Desc) { to <- probeTotal }

func (c probeCollector) Collect(to chan<- prometheus.Metric) {
	pods, _ := c.s.scraped(to, probeTotal)
	kinds := map[probe.Kind]string{probe.Startup: "Startup", probe.Readiness: "Readiness", probe.Liveness: "Liveness"}
	results := map[probe.Result]string{probe.Success: "successful", probe.Failure: "failed", probe.Unknown: "unknown"}
	for _, pod := range pods {
		for of, n := range c.s.Runtime.ProbeResults(pod) {
			to <- prometheus.MustNewConstMetric(probeTotal, prometheus.CounterValue, float64(n),
				kinds[of.Probe], results[of.Result], of.Container, pod.Name, pod.Namespace, string(pod.UID))
		}
	}
}

// stateOf returns the state of a container in the words of a runtime, "" for one that does not exist.
func stateOf(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return "exited"
	}
	return ""
}
