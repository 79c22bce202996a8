package ocispec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	return v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
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

func TestForPod(t *testing.T) {
	t.Parallel()
	none := map[int64]int64{}
	tests := []struct {
		name string
		pod  *v1.Pod
		want Limits
	}{
		{"best effort", podOf(container(nil, nil)), Limits{Shares: 2, HugePages: none}},
		{
			"guaranteed, summed", podOf(container(list("1", "1Gi"), list("1", "1Gi")), container(list("500m", "1Gi"), list("500m", "1Gi"))),
			Limits{Shares: 1536, Quota: 150000, Memory: 2 << 30, HugePages: none},
		},
		{"burstable without limits", podOf(container(list("100m", "1Gi"), nil)), Limits{Shares: 102, HugePages: none}},
		{
			"burstable, one without limits", podOf(container(list("1", ""), list("1", "1Gi")), container(list("1", ""), nil)),
			Limits{Shares: 2048, HugePages: none},
		},
		{
			"burstable, an init container without a memory limit",
			withInit(podOf(container(list("1", "1Mi"), list("1", "1Gi"))), container(nil, list("1", ""))),
			Limits{Shares: 1024, Quota: 100000, HugePages: none},
		},
		{
			"an init container that needs more", withInit(podOf(container(list("1", "1Gi"), list("1", "1Gi"))), container(list("2", "512Mi"), list("2", "512Mi"))),
			Limits{Shares: 2048, Quota: 200000, Memory: 1 << 30, HugePages: none},
		},
		{
			"pod level", withPodLevel(podOf(container(nil, nil)), list("1", "64Mi"), list("2", "1Gi")),
			Limits{Shares: 1024, Quota: 200000, Memory: 1 << 30, HugePages: none},
		},
		{
			"pages", podOf(container(list("1", "1Gi", "4Mi"), list("1", "1Gi", "4Mi"))),
			Limits{Shares: 1024, Quota: 100000, Memory: 1 << 30, HugePages: map[int64]int64{2 << 20: 4 << 20}},
		},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, PodLimits(tt.pod)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// level1Gi adds a page of 1 GiB to the pod's limits.
func level1Gi(pod *v1.Pod) *v1.Pod {
	pod.Spec.Resources.Limits["hugepages-1Gi"] = resource.MustParse("1Gi")
	return pod
}

func TestForContainer(t *testing.T) {
	t.Parallel()
	none := map[int64]int64{}
	large := level1Gi(withPodLevel(podOf(), nil, list("", "", "8Mi")))
	level := func() *v1.Pod { return withPodLevel(podOf(), list("1", "64Mi"), list("2", "1Gi", "8Mi")) }
	tests := []struct {
		name string
		pod  *v1.Pod
		c    v1.Container
		want Limits
	}{
		{"nothing", podOf(), container(nil, nil), Limits{Shares: 2, HugePages: none}},
		{"requests", podOf(), container(list("250m", "1Gi"), nil), Limits{Shares: 256, HugePages: none}},
		{"limits alone", podOf(), container(nil, list("250m", "64Mi")), Limits{Shares: 256, Quota: 25000, Memory: 64 << 20, HugePages: none}},
		{"a request of zero", podOf(), container(list("0", ""), list("1", "")), Limits{Shares: 2, Quota: 100000, HugePages: none}},
		{"the pod's limits", level(), container(nil, nil), Limits{Shares: 2048, Quota: 200000, Memory: 1 << 30, HugePages: map[int64]int64{2 << 20: 8 << 20}}},
		{
			"pages of one size its own, of the other the pod's", large, container(nil, list("", "", "2Mi")),
			Limits{Shares: 2, HugePages: map[int64]int64{2 << 20: 2 << 20, 1 << 30: 1 << 30}},
		},
		{"its own limits", level(), container(list("1", ""), list("1", "64Mi", "2Mi")), Limits{Shares: 1024, Quota: 100000, Memory: 64 << 20, HugePages: map[int64]int64{2 << 20: 2 << 20}}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, containerLimits(tt.pod, &tt.c)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestOOMScoreAdj(t *testing.T) {
	t.Parallel()
	const capacity = 8 << 30
	always := v1.ContainerRestartPolicyAlways
	sidecar := container(list("", "8Mi"), nil)
	sidecar.Name, sidecar.RestartPolicy = "sidecar", &always
	critical := podOf(container(nil, nil))
	critical.Spec.PriorityClassName = "system-node-critical"
	byNumber := podOf(container(nil, nil))
	byNumber.Spec.Priority = new(int32(2000001000))
	clusterCritical := podOf(container(nil, nil))
	clusterCritical.Spec.Priority = new(int32(2000000000))
	tests := []struct {
		name string
		pod  *v1.Pod
		c    v1.Container
		cap  int64
		want int
	}{
		{"node critical", critical, container(nil, nil), capacity, -997},
		{"node critical by number", byNumber, container(nil, nil), capacity, -997},
		{"cluster critical", clusterCritical, container(nil, nil), capacity, 1000},
		{"guaranteed", podOf(container(list("1", "1Gi"), list("1", "1Gi"))), container(nil, nil), capacity, -997},
		{"best effort", podOf(container(nil, nil)), container(nil, nil), capacity, 1000},
		{"a tenth", podOf(container(list("", "1Gi"), nil)), container(list("", "1Gi"), nil), 10 << 30, 900},
		{"an eighth", podOf(container(list("", "1Gi"), nil)), container(list("", "1Gi"), nil), capacity, 875},
		{"no memory request", podOf(container(list("1", ""), nil)), container(list("1", ""), nil), capacity, 999},
		{"everything", podOf(container(list("", "8Gi"), nil)), container(list("", "8Gi"), nil), capacity, 3},
		{"more than the capacity", podOf(container(list("", "80Gi"), nil)), container(list("", "80Gi"), nil), capacity, 3},
		{"absurd", podOf(container(list("", "8Ei"), nil)), container(list("", "7Ei"), nil), capacity, 3},
		{"unknown capacity", podOf(container(list("", "1Gi"), nil)), container(list("", "1Gi"), nil), 0, 999},
		{"a sidecar is as safe as the containers", withInit(podOf(container(list("", "1Gi"), nil)), sidecar), sidecar, capacity, 875},
		{
			"pod level, the rest divided", withPodLevel(podOf(container(list("", "1Gi"), nil), container(nil, nil)), list("", "3Gi"), nil),
			container(list("", "1Gi"), nil), capacity, 750,
		},
	}
	for _, tt := range tests {
		if got := oomScoreAdj(tt.pod, &tt.c, tt.cap); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
