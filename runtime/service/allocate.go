package service

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/big"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// The default range of node ports (kube-apiserver --service-node-port-range).
const firstNodePort, nodePorts = 30000, 2768

// allocation gives Services their addresses and ports, of which no two have the same.
type allocation struct {
	ranges []netip.Prefix
	ips    map[netip.Addr]string // who has them
	ports  map[nodePort]string
	// external are the ports of external IPs.
	external map[externalPort]string
}

type nodePort struct {
	protocol v1.Protocol
	port     int32
}

type externalPort struct {
	ip       netip.Addr
	protocol v1.Protocol
	port     int32
}

// define returns the state with the given Services in place of those of the same names, and without
// those that are gone. Each has cluster IPs of the ranges and node ports: as its manifest says, else
// those that it had, else such as follow from its name. None is a host port of the pods. An error is an InvalidError.
func (s state) define(services []*v1.Service, gone func(*v1.Service) bool, ranges []netip.Prefix, pods []*v1.Pod) (state, error) {
	given := map[string]bool{}
	for _, svc := range services {
		given[podspec.NameOf(svc).String()] = true
	}
	next := state{Version: version, Ranges: ranges, Rules: s.Rules, External: maps.Clone(s.External)}
	a := allocation{ranges, map[netip.Addr]string{}, map[nodePort]string{}, map[externalPort]string{}}
	for _, pod := range pods {
		for _, p := range podspec.HostPorts(pod) {
			a.ports[nodePort{p.Protocol, p.HostPort}] = fmt.Sprintf("pod %q", podspec.ShortName(podspec.NameOf(pod)))
		}
	}
	for _, svc := range s.Services {
		name := podspec.NameOf(svc).String()
		if given[name] || gone(svc) {
			delete(next.External, name)
			continue
		}
		next.Services = append(next.Services, svc)
		if err := a.take(svc); err != nil {
			return s, err
		}
	}
	own := make([]*v1.Service, 0, len(services))
	for _, svc := range services {
		svc = svc.DeepCopy()
		own = append(own, svc)
		if err := a.setFamilies(svc); err != nil {
			return s, err
		}
		if err := a.take(svc); err != nil { // what its manifest says
			return s, err
		}
	}
	slices.SortFunc(own, byName)
	for _, svc := range own {
		if old := s.find(podspec.NameOf(svc)); old != nil {
			a.keep(svc, old)
		}
	}
	for _, svc := range own {
		if err := a.complete(svc); err != nil {
			return s, err
		}
	}
	next.Services = append(next.Services, own...)
	slices.SortFunc(next.Services, byName)
	return next, nil
}

// take notes the addresses and ports of a Service.
func (a allocation) take(svc *v1.Service) error {
	name := fmt.Sprintf("Service %q", podspec.ShortName(podspec.NameOf(svc)))
	for i, ip := range addresses(svc) {
		if other, taken := a.ips[ip]; taken {
			field := "spec.clusterIP"
			if i > 0 {
				field = fmt.Sprintf("spec.clusterIPs[%d]", i)
			}
			return refuse(svc, field, "choose another address, or none", "%s is that of %s", ip, other)
		}
		a.ips[ip] = name
	}
	for i, p := range svc.Spec.Ports {
		for j, ip := range parse(svc.Spec.ExternalIPs) {
			wanted := externalPort{ip, p.Protocol, p.Port}
			if other, taken := a.external[wanted]; taken {
				return refuse(svc, fmt.Sprintf("spec.externalIPs[%d]", j), "choose another address or port", "port %d/%s of %s is that of %s", p.Port, p.Protocol, ip, other)
			}
			a.external[wanted] = name
		}
		if p.NodePort == 0 {
			continue
		}
		wanted := nodePort{p.Protocol, p.NodePort}
		if other, taken := a.ports[wanted]; taken {
			return refuse(svc, fmt.Sprintf("spec.ports[%d].nodePort", i), "choose another port, or none", "%d/%s is that of %s", p.NodePort, p.Protocol, other)
		}
		a.ports[wanted] = name
	}
	return nil
}

// setFamilies sets the families of the Service as the API server does (pkg/registry/core/service/storage,
// defaultOnWriteService and initIPFamilyFields).
func (a allocation) setFamilies(svc *v1.Service) error {
	spec := &svc.Spec
	if isExternal(svc) {
		return nil
	}
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	for i, ip := range addresses(svc) {
		if len(spec.IPFamilies) <= i {
			spec.IPFamilies = append(spec.IPFamilies, FamilyOf(ip))
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []v1.IPFamily{FamilyOf(a.ranges[0].Addr())}
	}
	policy := familyPolicy(svc)
	if policy != v1.IPFamilyPolicySingleStack {
		for _, r := range a.ranges {
			if f := FamilyOf(r.Addr()); !slices.Contains(spec.IPFamilies, f) {
				spec.IPFamilies = append(spec.IPFamilies, f)
			}
		}
	}
	for _, f := range spec.IPFamilies {
		if a.rangeOf(f) == (netip.Prefix{}) {
			return refuse(svc, "spec.ipFamilies", "give one with --service-cidr, and the pods addresses of it with --pod-cidr", "there is no range of %s addresses for Services", f)
		}
	}
	if policy == v1.IPFamilyPolicyRequireDualStack && len(spec.IPFamilies) < 2 {
		return refuse(svc, "spec.ipFamilyPolicy", "give --service-cidr and --pod-cidr, once with IPv4 and once with IPv6", "RequireDualStack needs a range of each family")
	}
	return nil
}

func familyPolicy(svc *v1.Service) v1.IPFamilyPolicy {
	switch spec := svc.Spec; {
	case len(spec.IPFamilies) > 1 && (spec.IPFamilyPolicy == nil || *spec.IPFamilyPolicy == v1.IPFamilyPolicySingleStack):
		return v1.IPFamilyPolicyRequireDualStack
	case spec.IPFamilyPolicy != nil:
		return *spec.IPFamilyPolicy
	}
	return v1.IPFamilyPolicySingleStack
}

// FamilyOf returns the family of an address.
func FamilyOf(ip netip.Addr) v1.IPFamily {
	if ip.Is4() {
		return v1.IPv4Protocol
	}
	return v1.IPv6Protocol
}

// rangeOf returns the range of the family, the zero Prefix if there is none.
func (a allocation) rangeOf(f v1.IPFamily) netip.Prefix {
	for _, r := range a.ranges {
		if FamilyOf(r.Addr()) == f {
			return r
		}
	}
	return netip.Prefix{}
}

// keep gives the Service what it had, unless its manifest says otherwise or somebody else has it now.
func (a allocation) keep(svc, old *v1.Service) {
	spec := &svc.Spec
	if hasAddresses(svc) && len(spec.ClusterIPs) == 0 && slices.Equal(spec.IPFamilies, old.Spec.IPFamilies) {
		free := !slices.ContainsFunc(addresses(old), func(ip netip.Addr) bool {
			return a.ips[ip] != "" || !a.rangeOf(FamilyOf(ip)).Contains(ip)
		})
		if free {
			spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
			for _, ip := range addresses(old) {
				a.ips[ip] = fmt.Sprintf("Service %q", podspec.ShortName(podspec.NameOf(svc)))
			}
		}
	}
	if !hasNodePorts(svc) {
		return
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		j := slices.IndexFunc(old.Spec.Ports, func(o v1.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol })
		if p.NodePort != 0 || j < 0 || old.Spec.Ports[j].NodePort == 0 {
			continue
		}
		if before := (nodePort{p.Protocol, old.Spec.Ports[j].NodePort}); a.ports[before] == "" {
			p.NodePort, a.ports[before] = before.port, fmt.Sprintf("Service %q", podspec.ShortName(podspec.NameOf(svc)))
		}
	}
}

func hasAddresses(svc *v1.Service) bool { return !isExternal(svc) && !podspec.IsHeadless(svc) }

// hasNodePorts reports whether each port of the Service is published on the machine's addresses.
func hasNodePorts(svc *v1.Service) bool {
	own := svc.Spec.AllocateLoadBalancerNodePorts
	return svc.Spec.Type == v1.ServiceTypeNodePort || svc.Spec.Type == v1.ServiceTypeLoadBalancer && (own == nil || *own)
}

// complete allocates the addresses and node ports that the Service does not have yet.
func (a allocation) complete(svc *v1.Service) error {
	spec, name := &svc.Spec, fmt.Sprintf("Service %q", podspec.ShortName(podspec.NameOf(svc)))
	if !hasAddresses(svc) {
		return nil
	}
	for _, f := range spec.IPFamilies[len(spec.ClusterIPs):] {
		ip, ok := a.freeIP(a.rangeOf(f), podspec.NameOf(svc).String())
		if !ok {
			return refuse(svc, "spec.clusterIP", "choose a larger range with --service-cidr", "no address is left in %s", a.rangeOf(f))
		}
		a.ips[ip] = name
		spec.ClusterIPs = append(spec.ClusterIPs, ip.String())
	}
	spec.ClusterIP = spec.ClusterIPs[0]
	if !hasNodePorts(svc) {
		return nil
	}
	for i := range spec.Ports {
		p := &spec.Ports[i]
		if p.NodePort != 0 {
			continue
		}
		free, ok := a.freePort(p.Protocol, fmt.Sprintf("%s:%d", podspec.NameOf(svc), p.Port))
		if !ok {
			return refuse(svc, fmt.Sprintf("spec.ports[%d]", i), "", "no node port is left for port %d", p.Port)
		}
		a.ports[free] = name
		p.NodePort = free.port
	}
	return nil
}

// maxTries bounds how many addresses are looked at, of which few are taken.
const maxTries = 1 << 16

// freeIP returns the first free address of the range from one on that follows from the name. The first address
// and the last one are left out.
func (a allocation) freeIP(r netip.Prefix, name string) (netip.Addr, bool) {
	count := uint64(1) << min(r.Addr().BitLen()-r.Bits(), 32)
	if count < 4 {
		return netip.Addr{}, false
	}
	count -= 2
	start := uint64(hashOf(name)) % count
	for i := range min(count, maxTries) {
		ip := add(r.Masked().Addr(), (start+i)%count+1)
		if a.ips[ip] == "" {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

// add returns the address n after ip.
func add(ip netip.Addr, n uint64) netip.Addr {
	bytes := ip.AsSlice()
	sum := new(big.Int).Add(new(big.Int).SetBytes(bytes), new(big.Int).SetUint64(n))
	ip, _ = netip.AddrFromSlice(sum.FillBytes(bytes))
	return ip
}

func (a allocation) freePort(protocol v1.Protocol, name string) (nodePort, bool) {
	start := hashOf(name)
	for i := range uint32(nodePorts) {
		at := nodePort{protocol, firstNodePort + int32((start+i)%nodePorts)}
		if a.ports[at] == "" {
			return at, true
		}
	}
	return nodePort{}, false
}

func hashOf(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum32()
}

func rangeInUse(old, wanted netip.Prefix) error {
	return &InvalidError{Message: fmt.Sprintf("Services have addresses of %s, not of %s", old, wanted), Hint: "remove them first: runonce down --all"}
}
