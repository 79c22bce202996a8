package service

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// entry is a line of a hosts file.
type entry struct {
	ip    netip.Addr
	names []string
}

// names returns what the pods of a namespace can reach by name: Services and the endpoints of headless ones as
// the DNS of a cluster has them (the specification is kubernetes/dns, docs/specification.md; all forms that
// the search domains of a pod allow), and besides that each pod by its own name where no Service has it.
func (s state) names(namespace, domain string, members []member) (all []entry) {
	for _, svc := range s.Services {
		names := forms(svc.Name, svc.Namespace, namespace, domain)
		switch {
		case isExternal(svc):
			for _, ip := range s.external(svc, domain, members) {
				all = append(all, entry{ip, names})
			}
		case podspec.IsHeadless(svc):
			all = append(all, headless(svc, names, namespace, domain, members)...)
		default:
			for _, ip := range addresses(svc) {
				all = append(all, entry{ip, names})
			}
		}
	}
	for _, m := range members {
		if s.inNamespace(m.pod.Namespace, m.pod.Name) {
			continue
		}
		names := []string{m.pod.Name + "." + m.pod.Namespace}
		if m.pod.Namespace == namespace {
			names = append(names, m.pod.Name)
		}
		for _, ip := range m.ips {
			all = append(all, entry{ip, names})
		}
	}
	return all
}

// forms returns the names of a Service, or of an endpoint of one, for pods of a namespace, the full one first.
func forms(name, own, namespace, domain string) []string {
	name += "." + own
	all := []string{name + ".svc." + domain, name + ".svc", name}
	if own == namespace {
		all = append(all, strings.TrimSuffix(name, "."+own))
	}
	return all
}

// headless returns the names of the endpoints of a headless Service: its own for all, and those of pods whose
// subdomain it is.
func headless(svc *v1.Service, names []string, namespace, domain string, members []member) (all []entry) {
	for _, m := range endpoints(svc, members) {
		own := names
		if m.pod.Spec.Hostname != "" && m.pod.Spec.Subdomain == svc.Name {
			own = append(forms(m.pod.Spec.Hostname+"."+svc.Name, svc.Namespace, namespace, domain), names...)
		}
		for _, ip := range addressesOf(m, svc) {
			all = append(all, entry{ip, own})
		}
	}
	return all
}

// external returns the addresses that a Service of type ExternalName stands for: those of another Service of the
// root, or those that its name had when it was defined.
func (s state) external(svc *v1.Service, domain string, members []member) (all []netip.Addr) {
	target := s.find(serviceOf(svc.Spec.ExternalName, domain))
	switch {
	case target == nil || isExternal(target):
		return s.External[key(svc).String()]
	case podspec.IsHeadless(target):
		for _, m := range endpoints(target, members) {
			all = append(all, addressesOf(m, target)...)
		}
		return all
	}
	return addresses(target)
}

// serviceOf returns which Service a name of the cluster domain is that of, the zero value for none.
func serviceOf(name, domain string) types.NamespacedName {
	rest, ok := strings.CutSuffix(strings.TrimSuffix(name, "."), ".svc."+domain)
	service, namespace, two := strings.Cut(rest, ".")
	if !ok || !two || strings.Contains(namespace, ".") {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: namespace, Name: service}
}

// The lines around the names in a hosts file. What a container writes before or after them stays.
const (
	beginNames = "# Names of Services and pods, kept up to date by runonce.\n"
	endNames   = "# End of these names.\n"
)

// withNames returns the hosts file with the names in place of those that it had, except those that it has otherwise: the
// pod's own, and those of its hostAliases.
func withNames(file []byte, all []entry) []byte {
	before, rest, had := bytes.Cut(file, []byte(beginNames))
	var after []byte
	if had {
		_, after, _ = bytes.Cut(rest, []byte(endNames))
	} else {
		before = append(bytes.TrimRight(before, "\n"), "\n\n"...)
	}
	taken := map[string]bool{}
	for line := range strings.Lines(string(before) + string(after)) {
		line, _, _ = strings.Cut(line, "#")
		for i, name := range strings.Fields(line) {
			if i > 0 {
				taken[name] = true
			}
		}
	}
	var own strings.Builder
	for _, e := range all {
		names := slices.DeleteFunc(slices.Clone(e.names), func(name string) bool { return taken[name] })
		if len(names) > 0 {
			own.WriteString(e.ip.String() + "\t" + strings.Join(names, "\t") + "\n")
		}
	}
	if own.Len() == 0 && !had {
		return file
	}
	return slices.Concat(before, []byte(beginNames), []byte(own.String()), []byte(endNames), after)
}
