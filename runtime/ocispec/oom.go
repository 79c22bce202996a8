package ocispec

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/runonce/runonce/internal/podspec"
)

// The oom_score_adj values that do not depend on memory (pkg/kubelet/qos/policy.go).
const (
	guaranteedOOMScoreAdj = -997
	bestEffortOOMScoreAdj = 1000
	nodeCriticalClass     = "system-node-critical"
	nodeCriticalPriority  = 2000001000
)

// oomScoreAdj returns the oom_score_adj of the container's processes
// (qos.GetContainerOOMScoreAdjust). capacity is the node's memory in bytes; when it is 0, a
// burstable container gets the highest score of its class.
func oomScoreAdj(pod *v1.Pod, c *v1.Container, capacity int64) int {
	if nodeCritical(pod) {
		return guaranteedOOMScoreAdj
	}
	switch podspec.QOS(pod) {
	case v1.PodQOSGuaranteed:
		return guaranteedOOMScoreAdj
	case v1.PodQOSBestEffort:
		return bestEffortOOMScoreAdj
	case v1.PodQOSBurstable:
	}
	if capacity <= 0 {
		return bestEffortOOMScoreAdj - 1
	}
	memory := c.Resources.Requests.Memory().Value()
	if podspec.IsSidecar(c) && isInit(pod, c) {
		// A sidecar is at least as safe as the container with the smallest request.
		memory = max(memory, leastRequest(pod))
	}
	score := int64(0)
	if memory += podShare(pod); memory <= math.MaxInt64/1000 {
		score = 1000 - 1000*memory/capacity
	}
	// Strictly between the guaranteed and the best-effort pods.
	return int(min(max(score, 1000+guaranteedOOMScoreAdj), bestEffortOOMScoreAdj-1))
}

func nodeCritical(pod *v1.Pod) bool {
	p := pod.Spec.Priority
	return pod.Spec.PriorityClassName == nodeCriticalClass || (p != nil && *p >= nodeCriticalPriority)
}

// podShare returns each container's share of the rest of the pod-level memory request, which
// no container requests.
func podShare(pod *v1.Pod) int64 {
	if !resource.IsPodLevelRequestsSet(pod) {
		return 0
	}
	all := pod.Spec.Resources.Requests
	own := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
	n := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers))
	if n == 0 {
		return 0
	}
	return max(0, all.Memory().Value()-own.Memory().Value()) / n
}

// leastRequest returns the smallest memory request of the regular containers.
func leastRequest(pod *v1.Pod) int64 {
	least := int64(math.MaxInt64)
	for _, c := range pod.Spec.Containers {
		least = min(least, c.Resources.Requests.Memory().Value())
	}
	return least
}

func isInit(pod *v1.Pod, c *v1.Container) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name })
}
