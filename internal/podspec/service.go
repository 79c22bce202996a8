package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// HasEndpoints says whether a Service can have endpoints: it selects pods, and is not another name of something
// outside. A selector without labels is none, which it becomes in an API server's storage.
func HasEndpoints(s *v1.Service) bool {
	return s.Spec.Type != v1.ServiceTypeExternalName && len(s.Spec.Selector) > 0
}

// IsHeadless says whether a Service has no address of its own, but those of its endpoints.
func IsHeadless(s *v1.Service) bool {
	return s.Spec.Type != v1.ServiceTypeExternalName && s.Spec.ClusterIP == v1.ClusterIPNone
}

// Selects says whether the pod is an endpoint of the Service once it is ready.
func Selects(s *v1.Service, pod *v1.Pod) bool {
	if !HasEndpoints(s) || s.Namespace != pod.Namespace {
		return false
	}
	for key, value := range s.Spec.Selector {
		if got, ok := pod.Labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// TargetPort returns the port of the pod to which a port of a Service with its defaults leads. A name is that of a
// port with the same protocol of a container or sidecar; false means that there is none (FindPort of
// k8s.io/endpointslice).
func TargetPort(p v1.ServicePort, pod *v1.Pod) (int32, bool) {
	if p.TargetPort.Type == intstr.Int {
		return p.TargetPort.IntVal, true
	}
	all := LongRunning(pod)
	sidecars := len(all) - len(pod.Spec.Containers)
	for _, c := range slices.Concat(all[sidecars:], all[:sidecars]) {
		for _, port := range c.Ports {
			if port.Name == p.TargetPort.StrVal && port.Protocol == p.Protocol {
				return port.ContainerPort, true
			}
		}
	}
	return 0, false
}
