package network

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// The names of capabilities by CNI's conventions.
const (
	capabilityPorts     = "portMappings"
	capabilityBandwidth = "bandwidth"
	capabilityIPs       = "ips"
	capabilityMAC       = "mac"
)

// bandwidthPlugin is the CNI plugin for pods with a bandwidth limit.
const bandwidthPlugin = "bandwidth"

// The annotations that limit a pod's traffic, in bits per second
// (pkg/util/bandwidth ExtractPodBandwidthResources).
const (
	ingressAnnotation = "kubernetes.io/ingress-bandwidth"
	egressAnnotation  = "kubernetes.io/egress-bandwidth"
)

// portMapping is a port of the host that leads to the pod.
type portMapping struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// bandwidthLimits limits the pod's traffic: rates in bits per second, bursts in bits; 0 is no limit.
type bandwidthLimits struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// capabilities are what a pod asks of a network.
type capabilities struct {
	Ports     []portMapping    `json:"ports,omitempty"`
	Bandwidth *bandwidthLimits `json:"bandwidth,omitempty"`
	IPs       []string         `json:"ips,omitempty"`
	MAC       string           `json:"mac,omitempty"`
}

// capabilitiesOf returns what the pod's spec and annotations ask of its first network.
func capabilitiesOf(pod *v1.Pod) (capabilities, error) {
	limits, err := bandwidthOf(pod)
	return capabilities{Ports: hostPorts(pod), Bandwidth: limits}, err
}

// arguments returns the capabilities by their CNI names.
func (c capabilities) arguments() map[string]any {
	args := map[string]any{}
	if len(c.Ports) > 0 {
		args[capabilityPorts] = c.Ports
	}
	if c.Bandwidth != nil {
		args[capabilityBandwidth] = c.Bandwidth
	}
	if len(c.IPs) > 0 {
		args[capabilityIPs] = c.IPs
	}
	if c.MAC != "" {
		args[capabilityMAC] = c.MAC
	}
	return args
}

// Names returns the CNI names of the capabilities, in order.
func (c capabilities) Names() []string { return slices.Sorted(maps.Keys(c.arguments())) }

// asksFor returns what in a manifest asks for the capability.
func asksFor(name string) string {
	switch name {
	case capabilityPorts:
		return "hostPort"
	case capabilityBandwidth:
		return "annotations " + ingressAnnotation + " and " + egressAnnotation
	default:
		return "annotation " + networksAnnotation + " with " + name
	}
}

// bandwidthOf returns the limits of the pod's annotations, nil when there are none.
func bandwidthOf(pod *v1.Pod) (*bandwidthLimits, error) {
	in, err := bitRate(pod, ingressAnnotation)
	if err != nil {
		return nil, err
	}
	out, err := bitRate(pod, egressAnnotation)
	if err != nil || in == 0 && out == 0 {
		return nil, err
	}
	b := &bandwidthLimits{IngressRate: in, EgressRate: out}
	// The burst that containerd's CRI plugin sets: the most that the plugin accepts.
	if in > 0 {
		b.IngressBurst = math.MaxUint32
	}
	if out > 0 {
		b.EgressBurst = math.MaxUint32
	}
	return b, nil
}

func bitRate(pod *v1.Pod, annotation string) (uint64, error) {
	text, ok := pod.Annotations[annotation]
	if !ok {
		return 0, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, failure.Permanentf("annotation %s: %q: %w", annotation, text, err)
	}
	if q.Cmp(resource.MustParse("1k")) < 0 || q.Cmp(resource.MustParse("1P")) > 0 {
		return 0, failure.Permanentf("annotation %s: %q: must be between 1k and 1P bits per second", annotation, text)
	}
	return uint64(q.Value()), nil
}

// hostPorts returns the ports of the host that lead to the pod, each once.
func hostPorts(pod *v1.Pod) []portMapping {
	var all []portMapping
	for _, p := range podspec.HostPorts(pod) {
		m := portMapping{
			HostPort: p.HostPort, ContainerPort: p.ContainerPort, HostIP: p.HostIP,
			Protocol: strings.ToLower(cmp.Or(string(p.Protocol), "tcp")),
		}
		if !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}
