package ocispec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestHugePageLimits(t *testing.T) {
	t.Parallel()
	limits := map[int64]int64{2 << 20: 4 << 20, 64 << 10: 1 << 20}
	tests := []struct {
		name  string
		sizes []int64
		want  []specs.LinuxHugepageLimit
	}{
		{"no controller", nil, []specs.LinuxHugepageLimit{}},
		{
			"sizes without a limit are forbidden, those without a controller left out",
			[]int64{1 << 30, 2 << 20},
			[]specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}, {Pagesize: "1GB"}},
		},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, hugePageLimits(tt.sizes, limits)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// TestSwap: the kubelet's NoSwap and LimitedSwap, on a node with 8Gi of memory.
func TestSwap(t *testing.T) {
	t.Parallel()
	memory := func(request, limit string) v1.ResourceRequirements {
		list := func(quantity string) v1.ResourceList {
			if quantity == "" {
				return nil
			}
			return v1.ResourceList{v1.ResourceMemory: resource.MustParse(quantity)}
		}
		return v1.ResourceRequirements{Requests: list(request), Limits: list(limit)}
	}
	cpu := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
	const limited = 4 << 30
	for name, tt := range map[string]struct {
		swap            int64
		priority        *int32
		own, other      v1.ResourceRequirements
		v1, unlimitable bool
		want            string
	}{
		"none":                         {own: memory("1Gi", ""), want: "0"},
		"a share":                      {swap: limited, own: memory("1Gi", ""), want: "536870912"},
		"a limit above the request":    {swap: limited, own: memory("2Gi", "4Gi"), want: "1073741824"},
		"a limit equal to the request": {swap: limited, own: memory("1Gi", "1Gi"), other: cpu, want: "0"},
		"BestEffort":                   {swap: limited, want: "0"},
		"Burstable by cpu alone":       {swap: limited, own: cpu, want: "0"},
		"Burstable by another":         {swap: limited, other: memory("1Gi", ""), want: "0"},
		"critical":                     {swap: limited, own: memory("1Gi", ""), priority: new(int32(2_000_000_000)), want: "0"},
		"important":                    {swap: limited, own: memory("1Gi", ""), priority: new(int32(1_999_999_999)), want: "536870912"},
		"more than the node":           {swap: limited, own: memory("9Gi", ""), want: "0"},
		"a kernel without accounting":  {own: memory("1Gi", ""), unlimitable: true},
		"cgroup v1":                    {own: memory("1Gi", ""), v1: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{Spec: v1.PodSpec{Priority: tt.priority, Containers: []v1.Container{{Name: "own", Resources: tt.own}, {Name: "other", Resources: tt.other}}}}
			in := Input{
				Context:   Context{Pod: pod, Node: Node{MemoryCapacity: 8 << 30}},
				Host:      Host{CgroupV2: !tt.v1, SwapLimit: !tt.unlimitable, Swap: tt.swap},
				Container: &pod.Spec.Containers[0],
			}
			if got := linuxResources(in).Unified["memory.swap.max"]; got != tt.want {
				t.Errorf("memory.swap.max = %q, want %q", got, tt.want)
			}
		})
	}
}
