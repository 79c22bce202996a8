package podspec

import (
	"fmt"
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

// TCPPort returns the port of the Service that has the number or the name, to which TCP connections can be made.
func TCPPort(s *v1.Service, port intstr.IntOrString) (v1.ServicePort, error) {
	for _, p := range s.Spec.Ports {
		if port.Type == intstr.Int && p.Port != port.IntVal || port.Type == intstr.String && p.Name != port.StrVal {
			continue
		}
		if p.Protocol == v1.ProtocolTCP || p.Protocol == "" {
			return p, nil
		}
	}
	return v1.ServicePort{}, fmt.Errorf("no TCP port %s in Service %q", port.String(), s.Namespace+"/"+s.Name)
}

// PortOf returns the number of a TCP port of a pod, which may be given by its name.
func PortOf(pod *v1.Pod, port intstr.IntOrString) (int32, error) {
	n, ok := TargetPort(v1.ServicePort{TargetPort: port, Protocol: v1.ProtocolTCP}, pod)
	if !ok {
		return 0, fmt.Errorf("pod %q has no TCP port named %q", FullName(pod), port.StrVal)
	}
	return n, nil
}

// NoSelector is the error for a Service that stands for no pods.
func NoSelector(s *v1.Service) error {
	return fmt.Errorf("no pods are selected by Service %q", s.Namespace+"/"+s.Name)
}

// NoEndpoints is the error for a Service to which nobody can connect now.
func NoEndpoints(s *v1.Service) error {
	return fmt.Errorf("no pod of Service %q is ready", s.Namespace+"/"+s.Name)
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
