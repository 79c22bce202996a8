package admit

import (
	v1 "k8s.io/api/core/v1"
	helper "k8s.io/component-helpers/resource"
)

// Requests returns what the pod requests, by the rule of the scheduler and the kubelet
// (component-helpers/resource.PodRequests): the sum of its containers and sidecars or the
// peak of its init containers, or else its pod-level resources, plus the overhead. The caller
// owns the result.
func Requests(pod *v1.Pod) v1.ResourceList {
	return helper.PodRequests(pod, helper.PodResourcesOptions{})
}
