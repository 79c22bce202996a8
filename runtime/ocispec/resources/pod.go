package resources

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/runonce/runonce/internal/podspec"
)

// Pod is what the cgroup of a pod is told. A pointer is nil where nothing is to be set.
type Pod struct {
	Shares uint64 // cpu.shares
	// Quota is in microseconds for each QuotaPeriod, 0 for no limit.
	Quota  *int64
	Memory *int64 // limit in bytes
	// HugePages maps a page size in bytes to a limit in bytes.
	HugePages map[int64]int64
}

// ForPod returns the limits of the pod's cgroup (cm.ResourceConfigForPod): the shares
// always, quota and memory limit only when every container has one, or the pod itself.
// Overhead counts.
func ForPod(pod *v1.Pod) Pod {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	limits := resource.PodLimits(pod, resource.PodResourcesOptions{})
	p := Pod{Shares: MinShares, HugePages: hugePages(requests)}
	class := podspec.QOS(pod)
	if class == v1.PodQOSBestEffort {
		return p
	}
	p.Shares = MilliCPUToShares(requests.Cpu().MilliValue())
	if class == v1.PodQOSGuaranteed || limited(pod, v1.ResourceCPU) {
		quota := MilliCPUToQuota(limits.Cpu().MilliValue())
		p.Quota = &quota
	}
	if class == v1.PodQOSGuaranteed || limited(pod, v1.ResourceMemory) {
		memory := limits.Memory().Value()
		p.Memory = &memory
	}
	return p
}

// limited reports whether the use of the resource is bounded for the pod as a whole.
func limited(pod *v1.Pod, name v1.ResourceName) bool {
	if resource.IsPodLevelResourcesSet(pod) {
		if q, ok := pod.Spec.Resources.Limits[name]; ok && !q.IsZero() {
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
