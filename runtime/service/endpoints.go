package service

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/service/rules"
)

// member is a pod with addresses.
type member struct {
	pod   *v1.Pod
	ips   []netip.Addr
	ready bool
}

// endpoints returns the pods that the Service stands for, those that are ready or that it wants all the same.
func endpoints(svc *v1.Service, members []member) (chosen []member) {
	if len(svc.Spec.Selector) == 0 || isExternal(svc) {
		return nil
	}
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	for _, m := range members {
		if m.pod.Namespace == svc.Namespace && (m.ready || svc.Spec.PublishNotReadyAddresses) && selector.Matches(labels.Set(m.pod.Labels)) {
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// addressesOf returns the addresses of a pod that are of a family of the Service.
func addressesOf(m member, svc *v1.Service) (all []netip.Addr) {
	for _, ip := range m.ips {
		if slices.Contains(svc.Spec.IPFamilies, familyOf(ip)) {
			all = append(all, ip)
		}
	}
	return all
}

// targetPort returns the port of the pod behind a port of a Service, 0 if the pod has none of that name
// (podutil.FindPort).
func targetPort(pod *v1.Pod, p v1.ServicePort) uint16 {
	if p.TargetPort.Type == intstr.Int {
		return uint16(cmp.Or(p.TargetPort.IntVal, p.Port))
	}
	for _, c := range podspec.LongRunning(pod) {
		for _, own := range c.Ports {
			if own.Name == p.TargetPort.StrVal && cmp.Or(own.Protocol, v1.ProtocolTCP) == p.Protocol {
				return uint16(own.ContainerPort)
			}
		}
	}
	return 0
}

// ports returns what the kernel has to know of the Services.
func (s state) ports(members []member) (all []rules.Port) {
	for _, svc := range s.Services {
		if !ruled(svc) {
			continue
		}
		chosen := endpoints(svc, members)
		for _, p := range svc.Spec.Ports {
			port := rules.Port{
				Name: key(svc).String() + ":" + cmp.Or(p.Name, p.TargetPort.String()), Protocol: p.Protocol, IPs: addresses(svc), ExternalIPs: parse(svc.Spec.ExternalIPs),
				Port: uint16(p.Port), NodePort: uint16(p.NodePort),
				Affinity: affinity(svc), KeepSource: svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal,
			}
			for _, m := range chosen {
				target := targetPort(m.pod, p)
				for _, ip := range addressesOf(m, svc) {
					if target != 0 {
						port.Endpoints = append(port.Endpoints, netip.AddrPortFrom(ip, target))
					}
				}
			}
			slices.SortFunc(port.Endpoints, netip.AddrPort.Compare)
			all = append(all, port)
		}
	}
	return all
}

// defaultAffinity is that of the API.
const defaultAffinity = time.Duration(v1.DefaultClientIPServiceAffinitySeconds) * time.Second

// affinity is how long a client stays with its endpoint, 0 for not at all.
func affinity(svc *v1.Service) time.Duration {
	if svc.Spec.SessionAffinity != v1.ServiceAffinityClientIP {
		return 0
	}
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
	}
	return defaultAffinity
}

func parse(texts []string) (all []netip.Addr) {
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			all = append(all, ip)
		}
	}
	return all
}
