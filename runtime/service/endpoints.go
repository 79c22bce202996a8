package service

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

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
	for _, m := range members {
		if (m.ready || svc.Spec.PublishNotReadyAddresses) && podspec.Selects(svc, m.pod) {
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// addressesOf returns the addresses of a pod that are of a family of the Service.
func addressesOf(m member, svc *v1.Service) (all []netip.Addr) {
	for _, ip := range m.ips {
		if slices.Contains(svc.Spec.IPFamilies, FamilyOf(ip)) {
			all = append(all, ip)
		}
	}
	return all
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
				Name: podspec.NameOf(svc).String() + ":" + cmp.Or(p.Name, p.TargetPort.String()), Protocol: p.Protocol, IPs: addresses(svc), ExternalIPs: parse(svc.Spec.ExternalIPs),
				Port: uint16(p.Port), NodePort: uint16(p.NodePort),
				Affinity: affinity(svc), KeepSource: svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal,
			}
			for _, m := range chosen {
				target, ok := podspec.TargetPort(p, m.pod)
				for _, ip := range addressesOf(m, svc) {
					if ok {
						port.Endpoints = append(port.Endpoints, netip.AddrPortFrom(ip, uint16(target)))
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
