package provider_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/expfmt"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/provider"
)

// TestStats: what the running containers have used, for the API server and for metrics-server.
func TestStats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newNode(t).provider(t.Context(), t)
		p.SetUsage(func(int) provider.Usage { return provider.NewUsage(1500*time.Millisecond, 5<<20, 2<<20) })
		web := newPod("web", v1.RestartPolicyAlways, "sleep")
		web.Spec.Containers = append(web.Spec.Containers, web.Spec.Containers[0])
		web.Spec.Containers[1].Name = "side"
		create(t, p, web)
		create(t, p, newPod("job", v1.RestartPolicyNever, "exit 0"))
		s, err := p.GetStatsSummary(t.Context())
		must(t, err)
		want(t, "node", s.Node.NodeName, nodeName)
		if len(s.Pods) != 1 || len(s.Pods[0].Containers) != 2 {
			t.Fatalf("pods: %+v", s.Pods)
		}
		pod := s.Pods[0]
		want(t, "pod", pod.PodRef.Name+" "+pod.PodRef.Namespace+" "+pod.PodRef.UID, "web default uid-web")
		want(t, "CPU time", *pod.CPU.UsageCoreNanoSeconds, uint64(3e9))
		want(t, "working set", *pod.Memory.WorkingSetBytes, uint64(6<<20))
		families, err := p.GetMetricsResource(t.Context())
		must(t, err)
		var text strings.Builder
		for _, f := range families {
			for _, m := range f.GetMetric() {
				m.TimestampMs = nil
			}
			if !strings.HasPrefix(f.GetName(), "node_") {
				_, err := expfmt.MetricFamilyToText(&text, f)
				must(t, err)
			}
		}
		want(t, "metrics", text.String(), `# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",pod="web",namespace="default"} 1.5
container_cpu_usage_seconds_total{container="side",pod="web",namespace="default"} 1.5
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="main",pod="web",namespace="default"} 3.145728e+06
container_memory_working_set_bytes{container="side",pod="web",namespace="default"} 3.145728e+06
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="main",pod="web",namespace="default"} 9.466848e+08
container_start_time_seconds{container="side",pod="web",namespace="default"} 9.466848e+08
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="default",pod="web"} 3
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="default",pod="web"} 6.291456e+06
# TYPE resource_scrape_error gauge
resource_scrape_error 0
`)
	})
}
