package spec

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The limits of a resolv.conf (pkg/apis/core/validation), of which the last two are in
// bytes.
const (
	maxNameservers    = 3
	maxSearches       = 32
	maxSearchLine     = 2048
	maxSearchDomain   = 253
	maxHostResolvConf = 10 << 20
)

// ResolvConf returns the content of the pod's /etc/resolv.conf by dnsPolicy and dnsConfig
// (pkg/kubelet/network/dns). host is the content of the host's file. There is no cluster
// DNS here, so that ClusterFirst means the host's resolvers, as it does to a kubelet that
// knows none. What exceeds the limits of resolvers is left out.
func ResolvConf(pod *v1.Pod, host []byte) ([]byte, error) {
	var r resolver
	switch policy := pod.Spec.DNSPolicy; policy {
	case v1.DNSNone:
	case v1.DNSDefault, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, "":
		if len(host) > maxHostResolvConf {
			return nil, fmt.Errorf("the host's resolv.conf is longer than %d bytes", maxHostResolvConf)
		}
		if err := r.parse(string(host)); err != nil {
			return nil, fmt.Errorf("reading the host's resolv.conf: %w", err)
		}
	default:
		return nil, configErrorf("invalid dnsPolicy %q", policy)
	}
	r.add(pod.Spec.DNSConfig)
	return r.limited().format(), nil
}

// resolver is what a resolv.conf says.
type resolver struct {
	servers  []string
	searches []string
	options  vars // the value of ndots:5 is 5
}

// parse reads a resolv.conf: nameservers add up, the last search line counts, options are
// merged by name (dns.parseResolvConf).
func (r *resolver) parse(text string) error {
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
				name, value, _ := strings.Cut(o, ":")
				r.options.set(name, value)
			}
		}
	}
	return nil
}

// add appends the pod's dnsConfig, leaving out what is there already; its options replace
// those of the same name.
func (r *resolver) add(c *v1.PodDNSConfig) {
	if c == nil {
		return
	}
	r.servers = unique(append(slices.Clone(r.servers), c.Nameservers...))
	r.searches = unique(append(slices.Clone(r.searches), c.Searches...))
	for _, o := range c.Options {
		value := ""
		if o.Value != nil {
			value = *o.Value
		}
		r.options.set(o.Name, value)
	}
}

// limited drops what the C library would choke on or ignore (dns.formDNSConfigFitsLimits).
func (r resolver) limited() resolver {
	r.servers = r.servers[:min(len(r.servers), maxNameservers)]
	searches := r.searches[:min(len(r.searches), maxSearches)]
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
	return r
}

func (r resolver) format() []byte {
	var b strings.Builder
	if len(r.searches) > 0 {
		b.WriteString("search " + strings.Join(r.searches, " ") + "\n")
	}
	for _, s := range r.servers {
		b.WriteString("nameserver " + s + "\n")
	}
	if len(r.options.names) > 0 {
		b.WriteString("options")
		for _, name := range r.options.names {
			b.WriteString(" " + name)
			if v := r.options.values[name]; v != "" {
				b.WriteString(":" + v)
			}
		}
		b.WriteString("\n")
	}
	return []byte(b.String())
}
