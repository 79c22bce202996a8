package network

import (
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/runtime/network/fault"
)

// The CNI conventions for what is asked of a network beyond an address.
const (
	capabilityPorts     = "portMappings"
	capabilityBandwidth = "bandwidth"
)

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

// bandwidth limits the pod's traffic, in bits per second and bits; 0 is no limit.
type bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// capabilities are what a pod asks of its network.
type capabilities struct {
	Ports     []portMapping `json:"ports,omitempty"`
	Bandwidth *bandwidth    `json:"bandwidth,omitempty"`
}

// capabilitiesOf reads them from the pod's spec and annotations.
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
	return args
}

// names returns the CNI names of the capabilities, in order.
func (c capabilities) names() []string { return slices.Sorted(maps.Keys(c.arguments())) }

// asksFor says in the words of a manifest what a capability is for.
func asksFor(name string) string {
	if name == capabilityPorts {
		return "hostPort"
	}
	return "annotations " + ingressAnnotation + " and " + egressAnnotation
}

func bandwidthOf(pod *v1.Pod) (*bandwidth, error) {
	in, err := bitRate(pod, ingressAnnotation)
	if err != nil {
		return nil, err
	}
	out, err := bitRate(pod, egressAnnotation)
	if err != nil || in == 0 && out == 0 {
		return nil, err
	}
	b := &bandwidth{IngressRate: in, EgressRate: out}
	// The burst that containerd's CRI plugin gives: as much as the plugin takes.
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
		return 0, fault.Permanentf("annotation %s: %q: %w", annotation, text, err)
	}
	if q.Cmp(resource.MustParse("1k")) < 0 || q.Cmp(resource.MustParse("1P")) > 0 {
		return 0, fault.Permanentf("annotation %s: %q: must be between 1k and 1P bits per second", annotation, text)
	}
	return uint64(q.Value()), nil
}

// hostPorts returns the ports of the host that the pod's containers ask for, those of
// init containers that go on running among them, without repetition. Other init
// containers are not there to answer.
func hostPorts(pod *v1.Pod) []portMapping {
	var all []portMapping
	seen := map[portMapping]bool{}
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			m := portMapping{
				HostPort:      p.HostPort,
				ContainerPort: p.ContainerPort,
				Protocol:      strings.ToLower(string(p.Protocol)),
				HostIP:        p.HostIP,
			}
			if m.Protocol == "" {
				m.Protocol = "tcp"
			}
			if !seen[m] {
				seen[m] = true
				all = append(all, m)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if p := pod.Spec.InitContainers[i].RestartPolicy; p != nil && *p == v1.ContainerRestartPolicyAlways {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return all
}
