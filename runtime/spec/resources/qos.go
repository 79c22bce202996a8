package resources

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// QOS returns the pod's quality of service class
// (pkg/apis/core/v1/helper/qos.ComputePodQOS).
func QOS(pod *v1.Pod) v1.PodQOSClass {
	if resource.IsPodLevelResourcesSet(pod) {
		return requirementsQOS(pod.Spec.Resources)
	}
	var class v1.PodQOSClass
	for c := range containers(pod) {
		q := requirementsQOS(&c.Resources)
		switch {
		case q == v1.PodQOSBurstable:
			return q
		case class == "":
			class = q
		case class != q:
			return v1.PodQOSBurstable
		}
	}
	if class == "" {
		return v1.PodQOSBestEffort
	}
	return class
}

// requirementsQOS looks at cpu and memory alone: BestEffort when neither is asked for,
// Guaranteed when each has a limit that equals the request.
func requirementsQOS(r *v1.ResourceRequirements) v1.PodQOSClass {
	cpu := resourceQOS(r, v1.ResourceCPU)
	if cpu != resourceQOS(r, v1.ResourceMemory) {
		return v1.PodQOSBurstable
	}
	return cpu
}

func resourceQOS(r *v1.ResourceRequirements, name v1.ResourceName) v1.PodQOSClass {
	request, limit := r.Requests[name], r.Limits[name]
	switch {
	case !request.Equal(limit):
		return v1.PodQOSBurstable
	case request.IsZero():
		return v1.PodQOSBestEffort
	}
	return v1.PodQOSGuaranteed
}

// containers returns an iterator over the init containers and the containers of the pod.
func containers(pod *v1.Pod) func(yield func(*v1.Container) bool) {
	return func(yield func(*v1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if !yield(&pod.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
	}
}
