package compose

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkNetworks warns about networks that keep services apart: pods have one.
func (c *converter) checkNetworks() {
	used := map[string]bool{}
	for _, s := range c.Services {
		for name := range s.Networks {
			used[name] = true
		}
	}
	if len(used) > 1 {
		c.warn(place{"networks"}, "all pods are in one network, so services reach each other also where %s keep them apart", list(sorted(used)))
	}
	for _, name := range sorted(used) {
		n, at := c.Networks[name], place{"networks", name}
		switch {
		case bool(n.External):
			c.warn(at, "is not created by these files: only the pods here are in it")
		case n.Internal:
			c.warn(at.at("internal"), "pods reach what is outside, as all pods do")
		case n.Driver != "" && n.Driver != "bridge":
			c.warn(at.at("driver"), "the driver %s is left out: see --cni-conf-dir for other networks", n.Driver)
		case len(n.Ipam.Config) > 0:
			c.warn(at.at("ipam"), "the network of pods has the subnet of --pod-cidr")
		}
	}
}

// network sets the network of the pod. The owner has its own, the others use it.
func (p *pod) network(s *types.ServiceConfig, owns bool) {
	p.checkAddresses(s)
	p.hosts(s)
	switch mode := s.NetworkMode; {
	case mode == "host":
		p.spec.HostNetwork = true
	case mode == "none":
		p.warn(field(s, "network_mode"), "every pod has a network")
	case strings.HasPrefix(mode, types.ContainerPrefix):
		p.fail(field(s, "network_mode"), "service %q: containers of others have no network for pods: use service:NAME", s.Name)
	case mode == "", mode == "bridge", mode == "default", strings.HasPrefix(mode, types.ServicePrefix):
	default:
		p.warn(field(s, "network_mode"), "the network %s is not that of pods: it has theirs", mode)
	}
	if owns {
		p.hostname(s)
		p.dns(s)
		return
	}
	if s.Hostname != "" || len(s.DNS)+len(s.DNSSearch)+len(s.DNSOpts) > 0 {
		p.warn(field(s), "hostname and dns are those of the pod of %s", p.name)
	}
}

// checkAddresses warns about what a service is to have in its networks.
func (p *pod) checkAddresses(s *types.ServiceConfig) {
	for _, name := range sorted(s.Networks) {
		n := s.Networks[name]
		if n == nil {
			continue
		}
		at := field(s, "networks", name)
		for _, fixed := range []struct{ key, value string }{{"ipv4_address", n.Ipv4Address}, {"ipv6_address", n.Ipv6Address}, {"mac_address", n.MacAddress}} {
			if fixed.value != "" {
				p.warn(at.at(fixed.key), "pods get their addresses from the network: use the name %s", p.names[s.Name])
			}
		}
		if len(n.DriverOpts)+len(n.LinkLocalIPs) > 0 || n.InterfaceName != "" {
			p.warn(at, "driver_opts, link_local_ips and interface_name are left out")
		}
	}
}

// hosts adds lines for /etc/hosts.
func (p *pod) hosts(s *types.ServiceConfig) {
	for _, host := range sorted(s.ExtraHosts) {
		for _, ip := range s.ExtraHosts[host] {
			at := field(s, "extra_hosts", item(host))
			if _, err := netip.ParseAddr(ip); err != nil {
				p.warn(at, "%s is no address that is known now: the name %s is left out", ip, host)
				continue
			}
			if bad := validation.IsDNS1123Subdomain(strings.ToLower(host)); len(bad) > 0 {
				p.warn(at, "%s is no DNS name: it is left out", host)
				continue
			}
			p.spec.HostAliases = addHost(p.spec.HostAliases, ip, strings.ToLower(host))
		}
	}
}

func addHost(aliases []v1.HostAlias, ip, host string) []v1.HostAlias {
	for i := range aliases {
		if aliases[i].IP == ip {
			if !slices.Contains(aliases[i].Hostnames, host) {
				aliases[i].Hostnames = append(aliases[i].Hostnames, host)
			}
			return aliases
		}
	}
	return append(aliases, v1.HostAlias{IP: ip, Hostnames: []string{host}})
}

// hostname sets the host name, which is that of the pod if none is given.
func (p *pod) hostname(s *types.ServiceConfig) {
	name := strings.ToLower(s.Hostname)
	if s.DomainName != "" {
		if name == "" {
			name = p.name
		}
		name += "." + strings.ToLower(s.DomainName)
		p.warn(field(s, "domainname"), "the host name is %s as a whole", name)
	}
	switch {
	case name == "":
	case p.spec.HostNetwork:
		p.warn(field(s, "hostname"), "with the network of the machine, a pod has the host name of the machine")
	case len(validation.IsDNS1123Label(name)) == 0:
		p.spec.Hostname = name
	case len(validation.IsDNS1123Subdomain(name)) == 0 && len(name) <= 64:
		p.spec.HostnameOverride = &name
	default:
		p.warn(field(s, "hostname"), "%s is no DNS name: the host name is %s", s.Hostname, p.name)
	}
}

// dns configures the resolver. Names of services are in /etc/hosts.
func (p *pod) dns(s *types.ServiceConfig) {
	if len(s.DNS)+len(s.DNSSearch)+len(s.DNSOpts) == 0 {
		return
	}
	p.spec.DNSConfig = &v1.PodDNSConfig{Nameservers: s.DNS}
	for _, domain := range s.DNSSearch {
		if domain != "." {
			p.spec.DNSConfig.Searches = append(p.spec.DNSConfig.Searches, domain)
		}
	}
	for _, option := range s.DNSOpts {
		name, value, found := strings.Cut(option, ":")
		o := v1.PodDNSConfigOption{Name: name}
		if found {
			o.Value = &value
		}
		p.spec.DNSConfig.Options = append(p.spec.DNSConfig.Options, o)
	}
	if len(s.DNS) > 0 {
		p.spec.DNSPolicy = v1.DNSNone // docker's replace those of the machine
	}
}

// namespaces shares those of the machine or, with the pause process that reaps zombies, those of the pod.
func (p *pod) namespaces(s *types.ServiceConfig) {
	yes := true
	switch {
	case s.Pid == "host":
		p.spec.HostPID = true
	case strings.HasPrefix(s.Pid, types.ServicePrefix), s.Init != nil && *s.Init:
		p.spec.ShareProcessNamespace = &yes
	case s.Pid != "":
		p.fail(field(s, "pid"), "service %q: %s is no namespace that a pod can have", s.Name, s.Pid)
	}
	switch {
	case s.Ipc == "host":
		p.spec.HostIPC = true
	case strings.HasPrefix(s.Ipc, types.ContainerPrefix):
		p.fail(field(s, "ipc"), "service %q: %s is no namespace that a pod can have", s.Name, s.Ipc)
	}
	if s.Runtime != "" && s.Runtime != "runc" {
		p.runtimeClass(s)
	}
}

// runtimeClass names the runtime, which run has to know.
func (p *pod) runtimeClass(s *types.ServiceConfig) {
	name := objectName(s.Runtime)
	p.spec.RuntimeClassName = &name
	p.classes[name] = newRuntimeClass(name)
	p.warn(field(s, "runtime"), "say what it is when you run the pods: --runtime-handler %s=PATH", name)
}
