package admit

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// requests makes the first container request a quantity that may be out of all bounds.
func requests(name v1.ResourceName, quantity string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: resource.MustParse(quantity)}
	}
}

// inits gives the pod init containers, of which some are sidecars.
func inits(lists ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, list := range lists {
			list, sidecar := strings.CutSuffix(list, ",sidecar")
			c := pod("", 0, list).Spec.Containers[0]
			if always := v1.ContainerRestartPolicyAlways; sidecar {
				c.RestartPolicy = &always
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		pod  *v1.Pod
		want map[v1.ResourceName]int64 // cpu in thousandths
	}{
		{"none", pod("p", 0, ""), map[v1.ResourceName]int64{}},
		{"one", pod("p", 0, "cpu=100m,memory=1Gi"), map[v1.ResourceName]int64{"cpu": 100, "memory": 1 << 30}},
		{"rounded up", pod("p", 0, "", requests("cpu", "1n")), map[v1.ResourceName]int64{"cpu": 1}},
		{"memory rounded up", pod("p", 0, "", requests("memory", "100m")), map[v1.ResourceName]int64{"memory": 1}},
		{"an init container's peak", pod("p", 0, "cpu=2", asInit(false)), map[v1.ResourceName]int64{"cpu": 2000}},
		{"a sidecar in addition", pod("p", 0, "cpu=2", asInit(true), requests("cpu", "1")), map[v1.ResourceName]int64{"cpu": 3000}},
		{"an init container with the sidecar before it", pod("p", 0, "cpu=2", inits("cpu=1,sidecar", "cpu=3")), map[v1.ResourceName]int64{"cpu": 4000}},
		{"an init container before a sidecar", pod("p", 0, "cpu=1", inits("cpu=3", "cpu=1,sidecar")), map[v1.ResourceName]int64{"cpu": 3000}},
		{"overhead", pod("p", 0, "cpu=2", func(p *v1.Pod) { p.Spec.Overhead = v1.ResourceList{"cpu": resource.MustParse("250m")} }), map[v1.ResourceName]int64{"cpu": 2250}},
		{"of the pod", pod("p", 0, "cpu=2", func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("3")}}
		}), map[v1.ResourceName]int64{"cpu": 3000}},
		{"ten exabytes", pod("p", 0, "", requests("memory", "10E")), map[v1.ResourceName]int64{"memory": math.MaxInt64}},
		{"negative", pod("p", 0, "", requests("memory", "-1")), map[v1.ResourceName]int64{"memory": 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := map[v1.ResourceName]int64{}
			for name, q := range Requests(test.pod) {
				got[name] = amount(name, q)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
