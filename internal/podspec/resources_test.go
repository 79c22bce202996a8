package podspec_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/internal/podspec"
)

// list makes a resource list of cpu, memory and, when given, 2 MiB pages.
func list(cpu, memory string, pages ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for name, value := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
		if value != "" {
			l[name] = resource.MustParse(value)
		}
	}
	for _, p := range pages {
		l["hugepages-2Mi"] = resource.MustParse(p)
	}
	return l
}

func container(requests, limits v1.ResourceList) v1.Container {
	return v1.Container{Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func podOf(containers ...v1.Container) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: containers}}
}

func withPodLevel(pod *v1.Pod, requests, limits v1.ResourceList) *v1.Pod {
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: requests, Limits: limits}
	return pod
}

func withInit(pod *v1.Pod, init ...v1.Container) *v1.Pod {
	pod.Spec.InitContainers = init
	return pod
}

func TestQOS(t *testing.T) {
	t.Parallel()
	same := container(list("1", "1Gi"), list("1", "1Gi"))
	tests := []struct {
		name string
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		{"nothing", podOf(container(nil, nil)), v1.PodQOSBestEffort},
		{"no containers", podOf(), v1.PodQOSBestEffort},
		{"zeros", podOf(container(list("0", "0"), list("0", "0"))), v1.PodQOSBestEffort},
		{"limits equal requests", podOf(same, same), v1.PodQOSGuaranteed},
		{"equal in other words", podOf(container(list("1", "1Gi"), list("1000m", "1024Mi"))), v1.PodQOSGuaranteed},
		{"one without", podOf(same, container(nil, nil)), v1.PodQOSBurstable},
		{"an init container without", withInit(podOf(same), container(nil, nil)), v1.PodQOSBurstable},
		{"cpu alone", podOf(container(list("1", ""), list("1", ""))), v1.PodQOSBurstable},
		{"a smaller request", podOf(container(list("1", "1Mi"), list("1", "1Gi"))), v1.PodQOSBurstable},
		{"pages do not count", podOf(container(list("", "", "2Mi"), list("", "", "2Mi"))), v1.PodQOSBestEffort},
		{"pod level", withPodLevel(podOf(container(nil, nil)), list("1", "1Gi"), list("1", "1Gi")), v1.PodQOSGuaranteed},
		{"pod level burstable", withPodLevel(podOf(same), list("1", ""), nil), v1.PodQOSBurstable},
	}
	for _, tt := range tests {
		if got := podspec.QOS(tt.pod); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
