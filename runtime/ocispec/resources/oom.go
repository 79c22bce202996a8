package resources

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

// OOMScoreAdj returns the oom_score_adj of the container's processes
// (qos.GetContainerOOMScoreAdjust). capacity is the node's memory in bytes; with 0, a
// burstable container gets the highest score that is its due.
func OOMScoreAdj(pod *v1.Pod, c *v1.Container, capacity int64) int {
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
	request := c.Resources.Requests.Memory().Value()
	share := podShare(pod)
	score := score(request+share, capacity)
	if podspec.IsSidecar(c) && isInit(pod, c) {
		score = min(score, scoreOf(pod, share, capacity))
	}
	// Between the guaranteed and the best-effort pods, never level with either.
	return int(min(max(score, 1000+guaranteedOOMScoreAdj), bestEffortOOMScoreAdj-1))
}

func nodeCritical(pod *v1.Pod) bool {
	p := pod.Spec.Priority
	return pod.Spec.PriorityClassName == nodeCriticalClass || (p != nil && *p >= nodeCriticalPriority)
}

// score is 1000 less the share of the node's memory, in thousandths.
func score(memory, capacity int64) int64 {
	if memory > math.MaxInt64/1000 {
		return 0
	}
	return 1000 - 1000*memory/capacity
}

// podShare is the part of a pod-level memory request that no container asks for, divided
// among the containers.
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

// scoreOf returns the score of the regular container that asks for the least memory.
func scoreOf(pod *v1.Pod, share, capacity int64) int64 {
	if len(pod.Spec.Containers) == 0 {
		return bestEffortOOMScoreAdj
	}
	least := pod.Spec.Containers[0].Resources.Requests.Memory().Value()
	for _, c := range pod.Spec.Containers[1:] {
		least = min(least, c.Resources.Requests.Memory().Value())
	}
	return score(least+share, capacity)
}

func isInit(pod *v1.Pod, c *v1.Container) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name })
}
