package service

import (
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

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
		return s.External[podspec.NameOf(svc).String()]
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
