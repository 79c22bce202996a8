package ocispec

import (
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// linuxResources returns the limits of the container's cgroup. Devices are denied except
// those that every OCI runtime allows by default.
func linuxResources(in Input) *specs.LinuxResources {
	limits := containerLimits(in.Pod, in.Container)
	period := uint64(QuotaPeriod)
	r := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		CPU:     &specs.LinuxCPU{Shares: &limits.Shares, Period: &period},
		Memory:  &specs.LinuxMemory{},
	}
	if limits.Quota > 0 {
		r.CPU.Quota = &limits.Quota
	}
	if limits.Memory > 0 {
		r.Memory.Limit = &limits.Memory
	}
	if in.CgroupV2 {
		// The kernel kills a container as a whole, not one process of it at random.
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	switch {
	case in.SwapLimit && in.CgroupV2:
		r.Unified["memory.swap.max"] = strconv.FormatInt(swap(in), 10)
	case in.SwapLimit && limits.Memory > 0:
		// Memory and swap together may not exceed the memory limit. Without a limit, cgroup
		// v1 cannot keep the container from swapping.
		r.Memory.Swap = &limits.Memory
	}
	r.HugepageLimits = hugePageLimits(in.HugePages, limits.HugePages)
	return r
}

// swap returns how many bytes of swap the container may use on cgroup v2: none, or by the kubelet's
// LimitedSwap the share of the node's swap that its memory request is of the node's memory
// (kuberuntime.GetContainerSwapBehavior and calcSwapForBurstablePods). Containers that are to have
// all their memory at any time get none: those of critical and Guaranteed pods, and those that may not use
// more than they have asked for.
func swap(in Input) int64 {
	request, limit := in.Container.Resources.Requests.Memory(), in.Container.Resources.Limits.Memory()
	critical := in.Pod.Spec.Priority != nil && *in.Pod.Spec.Priority >= systemCritical
	memory := in.Node.MemoryCapacity
	if critical || podspec.QOS(in.Pod) != v1.PodQOSBurstable || request.Cmp(*limit) == 0 || memory <= 0 || request.Value() > memory {
		return 0
	}
	return int64(float64(request.Value()) / float64(memory) * float64(in.Swap))
}

// systemCritical is the lowest priority of pods that the node or the cluster depends on
// (scheduling.SystemCriticalPriority).
const systemCritical = 2_000_000_000

// hugePageLimits limits each page size that cgroups can limit, to 0 where the container has
// no limit (kuberuntime.GetHugepageLimitsFromResources). Other sizes are left out, as with
// containerd's tolerate_missing_hugetlb_controller: OCI runtimes fail on them.
func hugePageLimits(sizes []int64, limits map[int64]int64) []specs.LinuxHugepageLimit {
	list := make([]specs.LinuxHugepageLimit, 0, len(sizes))
	for _, size := range slices.Sorted(slices.Values(sizes)) {
		list = append(list, specs.LinuxHugepageLimit{Pagesize: PageSizeName(size), Limit: uint64(limits[size])})
	}
	return list
}
