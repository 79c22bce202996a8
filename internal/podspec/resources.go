package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// QOS returns the pod's quality of service class
// (pkg/apis/core/v1/helper/qos.ComputePodQOS), whatever its status says.
func QOS(pod *v1.Pod) v1.PodQOSClass {
	if resource.IsPodLevelResourcesSet(pod) {
		return requirementsQOS(pod.Spec.Resources)
	}
	var class v1.PodQOSClass
	for _, c := range Containers(pod) {
		q := requirementsQOS(&c.Resources)
		if q == v1.PodQOSBurstable || class != "" && class != q {
			return v1.PodQOSBurstable
		}
		class = q
	}
	if class == "" {
		return v1.PodQOSBestEffort
	}
	return class
}

// requirementsQOS considers only cpu and memory: BestEffort when neither is requested,
// Guaranteed when each has a limit equal to the request.
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

// PageSize returns the page size in bytes of a resource name such as hugepages-2Mi.
func PageSize(name v1.ResourceName) (int64, bool) {
	size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false
	}
	q, err := apiresource.ParseQuantity(size)
	if err != nil || q.Sign() <= 0 {
		return 0, false
	}
	return q.Value(), true
}
