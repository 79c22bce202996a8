package resources

import (
	"maps"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Container is what the cgroup of a container is told.
type Container struct {
	Shares uint64 // cpu.shares
	Quota  int64  // microseconds for each QuotaPeriod, 0 for no limit
	Memory int64  // limit in bytes, 0 for none
	// HugePages maps a page size in bytes to a limit in bytes.
	HugePages map[int64]int64
}

// ForContainer returns the limits of the container's cgroup
// (kuberuntime.generateLinuxContainerResources): shares from the request, else from the
// limit; a container without a limit inherits the pod-level one.
func ForContainer(pod *v1.Pod, c *v1.Container) Container {
	cpuLimit, memoryLimit := c.Resources.Limits.Cpu(), c.Resources.Limits.Memory()
	if resource.IsPodLevelResourcesSet(pod) {
		if cpuLimit.IsZero() {
			cpuLimit = pod.Spec.Resources.Limits.Cpu()
		}
		if memoryLimit.IsZero() {
			memoryLimit = pod.Spec.Resources.Limits.Memory()
		}
	}
	request := cpuLimit
	if q, ok := c.Resources.Requests[v1.ResourceCPU]; ok {
		request = &q
	}
	return Container{
		Shares:    MilliCPUToShares(request.MilliValue()),
		Quota:     MilliCPUToQuota(cpuLimit.MilliValue()),
		Memory:    memoryLimit.Value(),
		HugePages: containerHugePages(pod, c),
	}
}

// containerHugePages returns the pod's limits, and for the page sizes that the container has
// limits of its own for, those (kuberuntime.GetHugepageLimitsFromResources).
func containerHugePages(pod *v1.Pod, c *v1.Container) map[int64]int64 {
	limits := map[int64]int64{}
	if resource.IsPodLevelResourcesSet(pod) {
		limits = hugePages(pod.Spec.Resources.Limits)
	}
	maps.Copy(limits, hugePages(c.Resources.Limits))
	return limits
}

// PageSizeName writes a page size as the kernel names its cgroup files: 64KB, 2MB, 1GB.
func PageSizeName(size int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for size >= 1024 && size%1024 == 0 && i < len(units)-1 {
		size /= 1024
		i++
	}
	return strconv.FormatInt(size, 10) + units[i]
}
