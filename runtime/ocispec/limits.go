package ocispec

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
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
	// The kubelet's NoSwap (kuberuntime.ConfigureNoSwap).
	case in.SwapLimit && in.CgroupV2:
		r.Unified["memory.swap.max"] = "0"
	case in.SwapLimit && limits.Memory > 0:
		// Memory and swap together may not exceed the memory limit. Without a limit, cgroup
		// v1 cannot keep the container from swapping.
		r.Memory.Swap = &limits.Memory
	}
	r.HugepageLimits = hugePageLimits(in.HugePages, limits.HugePages)
	return r
}

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
