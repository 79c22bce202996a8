package admit

import (
	v1 "k8s.io/api/core/v1"
	helper "k8s.io/component-helpers/resource"

	"github.com/runonce/runonce/internal/podspec"
)

// Requests returns what the pod requests, by the rule of the scheduler and the kubelet
// (component-helpers/resource.PodRequests): the sum of its containers and sidecars or the
// peak of its init containers, or else its pod-level resources, plus the overhead. The caller
// owns the result. A quantity beyond an int64 counts as the largest one.
func Requests(pod *v1.Pod) v1.ResourceList {
	return helper.PodRequests(bounded(pod), helper.PodResourcesOptions{})
}

// QOS returns the pod's class. A quantity beyond an int64 counts as the largest one.
func QOS(pod *v1.Pod) v1.PodQOSClass { return podspec.QOS(bounded(pod)) }

// bounded returns the pod, or a copy in which no quantity is too large to count with.
func bounded(pod *v1.Pod) *v1.Pod {
	within := true
	eachList(pod, func(list v1.ResourceList) {
		for _, q := range list {
			within = within && countable(q)
		}
	})
	if within {
		return pod
	}
	pod = pod.DeepCopy()
	eachList(pod, func(list v1.ResourceList) {
		for name, q := range list {
			list[name] = capped(q)
		}
	})
	return pod
}

// eachList calls f for each list of resources that the requests and the QoS class depend on.
func eachList(pod *v1.Pod, f func(v1.ResourceList)) {
	for _, c := range podspec.Containers(pod) {
		f(c.Resources.Requests)
		f(c.Resources.Limits)
	}
	if pod.Spec.Resources != nil {
		f(pod.Spec.Resources.Requests)
		f(pod.Spec.Resources.Limits)
	}
	f(pod.Spec.Overhead)
}
