package ocispec

import (
	"maps"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/runonce/runonce/internal/podspec"
)

// Limits are the settings of the cgroup of a pod or a container.
type Limits struct {
	Shares uint64 // cpu.shares
	Quota  int64  // microseconds for each QuotaPeriod, 0 for no limit
	Memory int64  // bytes, 0 for no limit
	// HugePages maps a page size in bytes to a limit in bytes.
	HugePages map[int64]int64
}

// PodLimits returns the limits of the pod's cgroup (cm.ResourceConfigForPod): the shares
// always, quota and memory limit only when every container has one, or the pod itself.
// Overhead counts.
func PodLimits(pod *v1.Pod) Limits {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	limits := resource.PodLimits(pod, resource.PodResourcesOptions{})
	l := Limits{Shares: podspec.MinShares, HugePages: hugePages(requests)}
	class := podspec.QOS(pod)
	if class == v1.PodQOSBestEffort {
		return l
	}
	l.Shares = milliCPUToShares(requests.Cpu().MilliValue())
	if class == v1.PodQOSGuaranteed || limited(pod, v1.ResourceCPU) {
		l.Quota = milliCPUToQuota(limits.Cpu().MilliValue())
	}
	if class == v1.PodQOSGuaranteed || limited(pod, v1.ResourceMemory) {
		l.Memory = limits.Memory().Value()
	}
	return l
}

// limited reports whether the resource is limited for the pod as a whole.
func limited(pod *v1.Pod, name v1.ResourceName) bool {
	if resource.IsPodLevelResourcesSet(pod) {
		if q := pod.Spec.Resources.Limits[name]; !q.IsZero() {
			return true
		}
	}
	for _, c := range podspec.Containers(pod) {
		if q := c.Resources.Limits[name]; q.IsZero() {
			return false
		}
	}
	return true
}

// containerLimits returns the limits of the container's cgroup
// (kuberuntime.generateLinuxContainerResources): shares from the request, else from the
// limit; a container without a limit inherits the pod-level one.
func containerLimits(pod *v1.Pod, c *v1.Container) Limits {
	cpuLimit, memoryLimit := c.Resources.Limits.Cpu(), c.Resources.Limits.Memory()
	pages := map[int64]int64{}
	if resource.IsPodLevelResourcesSet(pod) {
		level := pod.Spec.Resources.Limits
		if cpuLimit.IsZero() {
			cpuLimit = level.Cpu()
		}
		if memoryLimit.IsZero() {
			memoryLimit = level.Memory()
		}
		pages = hugePages(level)
	}
	// By page size, as in kuberuntime.GetHugepageLimitsFromResources.
	maps.Copy(pages, hugePages(c.Resources.Limits))
	request := cpuLimit
	if q, ok := c.Resources.Requests[v1.ResourceCPU]; ok {
		request = &q
	}
	return Limits{
		Shares:    milliCPUToShares(request.MilliValue()),
		Quota:     milliCPUToQuota(cpuLimit.MilliValue()),
		Memory:    memoryLimit.Value(),
		HugePages: pages,
	}
}

// hugePages returns the sum of each page size in the list.
func hugePages(list v1.ResourceList) map[int64]int64 {
	sizes := map[int64]int64{}
	for name, q := range list {
		if size, ok := podspec.PageSize(name); ok {
			sizes[size] += q.Value()
		}
	}
	return sizes
}

// PageSizeName formats a page size as the kernel does in the names of cgroup files: 64KB,
// 2MB, 1GB.
func PageSizeName(size int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for size >= 1024 && size%1024 == 0 && i < len(units)-1 {
		size /= 1024
		i++
	}
	return strconv.FormatInt(size, 10) + units[i]
}
