package ocispec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The limits of a resolv.conf (pkg/apis/core/validation); lengths are in bytes.
const (
	maxNameservers    = 3
	maxSearches       = 32
	maxSearchLine     = 2048
	maxSearchDomain   = 253
	maxHostResolvConf = 10 << 20
)

// DNS is what resolv.conf files are made from.
type DNS struct {
	Host []byte // content of the host's resolv.conf
	// Servers are the addresses of the cluster's DNS and Domain is its domain, empty
	// without a cluster.
	Servers []string
	Domain  string
}

// ResolvConf returns the content of the pod's /etc/resolv.conf according to its dnsPolicy
// and dnsConfig (pkg/kubelet/network/dns), and warnings. ClusterFirst without a cluster's
// DNS means the host's resolvers, as in a kubelet without clusterDNS. What exceeds the
// limits of resolvers is left out.
func ResolvConf(pod *v1.Pod, d DNS) (content []byte, warnings []string, err error) {
	var r resolvConf
	if pod.Spec.DNSPolicy != v1.DNSNone {
		if len(d.Host) > maxHostResolvConf {
			return nil, nil, fmt.Errorf("the host's resolv.conf is longer than %d bytes", maxHostResolvConf)
		}
		if err := r.parse(string(d.Host)); err != nil {
			return nil, nil, fmt.Errorf("reading the host's resolv.conf: %w", err)
		}
	}
	switch policy := pod.Spec.DNSPolicy; {
	case policy == v1.DNSClusterFirstWithHostNet && len(d.Servers) == 0:
		r.warnings = append(r.warnings, "dnsPolicy ClusterFirstWithHostNet without --cluster-dns: falling back to Default")
	case policy == v1.DNSClusterFirstWithHostNet, (policy == v1.DNSClusterFirst || policy == "") && !pod.Spec.HostNetwork && len(d.Servers) > 0:
		r.cluster(pod.Namespace, d)
	}
	r.add(pod.Spec.DNSConfig)
	r.limit()
	if !pod.Spec.HostNetwork {
		r.warnLoopback()
		if len(r.servers) == 0 && pod.Spec.DNSPolicy != v1.DNSNone {
			r.warnings = append(r.warnings, "the pod has no nameserver, since the host has none in its resolv.conf")
		}
	}
	return r.format(), r.warnings, nil
}

// resolvConf is the content of a resolv.conf.
type resolvConf struct {
	servers  []string
	searches []string
	options  []v1.PodDNSConfigOption // at most one of each name
	warnings []string
}

// cluster replaces the host's servers and options by those of the cluster's DNS, and puts
// the cluster's domains before the host's.
func (r *resolvConf) cluster(namespace string, d DNS) {
	r.servers = slices.Clone(d.Servers)
	if d.Domain != "" {
		r.searches = unique(append([]string{namespace + ".svc." + d.Domain, "svc." + d.Domain, d.Domain}, r.searches...))
	}
	ndots := "5"
	r.options = []v1.PodDNSConfigOption{{Name: "ndots", Value: &ndots}}
}

// parse reads a resolv.conf: nameservers add up, only the last search line counts, options
// are merged by name (dns.parseResolvConf).
func (r *resolvConf) parse(text string) error {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				return fmt.Errorf("nameserver list is empty")
			}
			r.servers = append(r.servers, fields[1])
		case "search":
			r.searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					r.searches = append(r.searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, o := range fields[1:] {
				option := v1.PodDNSConfigOption{Name: o}
				if name, value, ok := strings.Cut(o, ":"); ok {
					option = v1.PodDNSConfigOption{Name: name, Value: &value}
				}
				r.set(option)
			}
		}
	}
	return nil
}

// Nameservers returns those in the text of a resolv.conf. Lines that are not complete are left out.
func Nameservers(text string) []string {
	var servers []string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			servers = append(servers, f[1])
		}
	}
	return servers
}

// add appends the pod's dnsConfig without duplicates; its options replace those of the same
// name.
func (r *resolvConf) add(c *v1.PodDNSConfig) {
	if c == nil {
		return
	}
	r.servers = unique(append(slices.Clone(r.servers), c.Nameservers...))
	r.searches = unique(append(slices.Clone(r.searches), c.Searches...))
	for _, o := range c.Options {
		r.set(o)
	}
}

// set replaces the option of that name, or adds it.
func (r *resolvConf) set(o v1.PodDNSConfigOption) {
	if i := slices.IndexFunc(r.options, func(have v1.PodDNSConfigOption) bool { return have.Name == o.Name }); i >= 0 {
		r.options[i] = o
		return
	}
	r.options = append(r.options, o)
}

// limit drops what the C library would reject or ignore, with the kubelet's warnings
// (dns.formDNSConfigFitsLimits).
func (r *resolvConf) limit() {
	if len(r.servers) > maxNameservers {
		r.servers = r.servers[:maxNameservers]
		r.warnings = append(r.warnings, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+
			strings.Join(r.servers, " "))
	}
	all := len(r.searches)
	searches := r.searches[:min(all, maxSearches)]
	r.searches = nil
	length := 0
	for _, s := range searches {
		if len(s) > maxSearchDomain {
			continue
		}
		if length += len(s); length > maxSearchLine {
			break
		}
		length++ // the space
		r.searches = append(r.searches, s)
	}
	if len(r.searches) < all {
		r.warnings = append(r.warnings, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+
			strings.Join(r.searches, " "))
	}
}

// warnLoopback warns of servers on the host's loopback, which is not the pod's.
func (r *resolvConf) warnLoopback() {
	for _, s := range r.servers {
		if ip, err := netip.ParseAddr(s); err == nil && ip.IsLoopback() {
			r.warnings = append(r.warnings, "the pod cannot reach nameserver "+s+", which is on the loopback of the host")
		}
	}
}

func (r *resolvConf) format() []byte {
	var b strings.Builder
	if len(r.searches) > 0 {
		b.WriteString("search " + strings.Join(r.searches, " ") + "\n")
	}
	for _, s := range r.servers {
		b.WriteString("nameserver " + s + "\n")
	}
	if len(r.options) > 0 {
		b.WriteString("options")
		for _, o := range r.options {
			b.WriteString(" " + o.Name)
			if o.Value != nil && *o.Value != "" {
				b.WriteString(":" + *o.Value)
			}
		}
		b.WriteString("\n")
	}
	return []byte(b.String())
}
