package admit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"

	"github.com/runonce/runonce/admit/quantity"
)

// Requests returns what the pod asks of a node, by the rule of the scheduler and the
// kubelet (component-helpers/resource.PodRequests): the sum of its containers and
// sidecars or the peak of its init containers, pod-level resources in their place, and
// the overhead on top. The caller owns the result. A quantity beyond an int64 counts as
// the largest one.
func Requests(pod *v1.Pod) v1.ResourceList {
	return helper.PodRequests(bounded(pod), helper.PodResourcesOptions{})
}

// QOS returns the pod's class (pkg/apis/core/v1/helper/qos.ComputePodQOS). It is worked
// out from the spec, whatever the status says.
func QOS(pod *v1.Pod) v1.PodQOSClass {
	if helper.IsPodLevelResourcesSet(pod) {
		return qosOf(pod.Spec.Resources)
	}
	var class v1.PodQOSClass
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := qosOf(&list[i].Resources)
			switch {
			case c == v1.PodQOSBurstable, class != "" && class != c:
				return v1.PodQOSBurstable
			default:
				class = c
			}
		}
	}
	if class == "" {
		return v1.PodQOSBestEffort
	}
	return class
}

// qosOf returns the class of one set of requirements.
func qosOf(r *v1.ResourceRequirements) v1.PodQOSClass {
	cpu := qosOfOne(r.Requests[v1.ResourceCPU], r.Limits[v1.ResourceCPU])
	if memory := qosOfOne(r.Requests[v1.ResourceMemory], r.Limits[v1.ResourceMemory]); memory != cpu {
		return v1.PodQOSBurstable
	}
	return cpu
}

func qosOfOne(request, limit resource.Quantity) v1.PodQOSClass {
	request, limit = quantity.Bound(request), quantity.Bound(limit)
	switch {
	case request.Cmp(limit) != 0:
		return v1.PodQOSBurstable
	case request.IsZero():
		return v1.PodQOSBestEffort
	default:
		return v1.PodQOSGuaranteed
	}
}

// bounded returns the pod, or a copy in which no quantity is too large to count with.
// Arithmetic on a quantity like 1e999999999 would take all memory there is.
func bounded(pod *v1.Pod) *v1.Pod {
	within := true
	eachList(pod, func(list v1.ResourceList) {
		for _, q := range list {
			within = within && quantity.Countable(q)
		}
	})
	if within {
		return pod
	}
	pod = pod.DeepCopy()
	eachList(pod, func(list v1.ResourceList) {
		for name, q := range list {
			list[name] = quantity.Bound(q)
		}
	})
	return pod
}

// eachList calls f for each list of resources that requests depend on.
func eachList(pod *v1.Pod, f func(v1.ResourceList)) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			f(list[i].Resources.Requests)
		}
	}
	if pod.Spec.Resources != nil {
		f(pod.Spec.Resources.Requests)
	}
	f(pod.Spec.Overhead)
}
