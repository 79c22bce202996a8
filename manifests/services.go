package manifests

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
)

func (r *reader) service(e *entry) step {
	o := &v1.Service{}
	if !r.decodeInto(e, o) {
		return nil
	}
	e.checkFields(r.fields.usesOf(kindService, o), "")
	if o.Spec.Type == v1.ServiceTypeLoadBalancer {
		e.warn("spec.type", "there is no load balancer here: the Service can be reached at its cluster IP, its node ports and its external IPs", "")
	}
	for name, field := range map[string]string{podspec.AnnotationDependsOn: fieldDependsOn, podspec.AnnotationOptional: fieldOptional, podspec.AnnotationPublish: fieldPublish} {
		if _, ok := o.Annotations[name]; ok {
			e.fail(field, "has no effect on the pods of a Service", "move it to the pods")
		}
	}
	e.problems = append(e.problems, r.rules.CheckService(e.doc, o)...)
	return func() {
		if !r.register(e, e.kind, o) || e.failed() {
			return
		}
		if r.checkUnique(e, o); !e.failed() {
			r.put(e, kindService, o)
		}
	}
}

// endpoint is an address or a port of this machine that only one Service can have.
type endpoint struct{ field, what, hint string }

// endpoints returns what the Service claims, as it is written.
func endpoints(s *v1.Service) (list []endpoint) {
	if s.Spec.Type == v1.ServiceTypeExternalName || podspec.IsHeadless(s) {
		return nil
	}
	for i, ip := range s.Spec.ClusterIPs {
		field := fmt.Sprintf("spec.clusterIPs[%d]", i)
		if i == 0 {
			field = "spec.clusterIP"
		}
		list = append(list, endpoint{field, "the cluster IP " + canonical(ip), "choose another one, or leave it out to get a free one"})
	}
	for i, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			list = append(list, endpoint{
				fmt.Sprintf("spec.ports[%d].nodePort", i), fmt.Sprintf("the node port %d/%s", p.NodePort, p.Protocol),
				"choose another one, or leave it out to get a free one",
			})
		}
		for j, ip := range s.Spec.ExternalIPs {
			list = append(list, endpoint{
				fmt.Sprintf("spec.externalIPs[%d]", j), fmt.Sprintf("the port %d/%s of the external IP %s", p.Port, p.Protocol, canonical(ip)),
				"choose another address or port",
			})
		}
	}
	return list
}

// canonical returns the usual form of an address.
func canonical(ip string) string {
	if addr, err := netip.ParseAddr(ip); err == nil {
		return addr.Unmap().String()
	}
	return ip
}

// checkUnique refuses a Service that claims what another one of the input has.
func (r *reader) checkUnique(e *entry, s *v1.Service) {
	own := endpoints(s)
	for _, p := range own {
		if first := r.endpoints[p.what]; first != nil && first != e {
			e.fail(p.field, fmt.Sprintf("Service %q at %s has %s", first.name, first.source(), p.what), p.hint)
		}
	}
	if e.failed() {
		return
	}
	for _, p := range own {
		r.endpoints[p.what] = e
	}
}

// checkServices warns of Services that lead to no pod of the input. A cluster has others.
func (r *reader) checkServices() {
	if r.options.Cluster {
		return
	}
	for _, e := range r.entries {
		if s, ok := r.serviceOf(e); ok {
			r.checkEndpoints(e, s)
		}
	}
}

// serviceOf returns the valid Service of a document.
func (r *reader) serviceOf(e *entry) (*v1.Service, bool) {
	if !e.isService() || e.failed() {
		return nil, false
	}
	return find[*v1.Service](r.set, kindService, e.namespace, e.name)
}

// isService says whether the document is one, and not one of Knative.
func (e *entry) isService() bool { return e.kind == kindService && e.doc.APIVersion() == "v1" }

func (r *reader) checkEndpoints(e *entry, s *v1.Service) {
	consequence := "connections are refused"
	if podspec.IsHeadless(s) {
		consequence = "its name has no addresses"
	}
	if !podspec.HasEndpoints(s) {
		if s.Spec.Type != v1.ServiceTypeExternalName {
			e.warn("spec.selector", "without a selector, the Service has no endpoints here: "+consequence,
				"select pods by their labels; a Service of type ExternalName is a name for something outside")
		}
		return
	}
	selected := r.selection().selected(s)
	if len(selected) == 0 {
		e.warn("spec.selector", "no pod of the input has these labels: "+consequence+" until others do", r.selection().hint(s))
		return
	}
	if podspec.IsHeadless(s) || slices.ContainsFunc(selected, func(c *candidate) bool { return c.pod == nil }) {
		return // its ports have no effect, or those of its pods are not known
	}
	for i, p := range s.Spec.Ports {
		reached := slices.ContainsFunc(selected, func(c *candidate) bool { _, ok := podspec.TargetPort(p, c.pod); return ok })
		if !reached {
			e.warn(fmt.Sprintf("spec.ports[%d].targetPort", i), fmt.Sprintf("no container of the selected pods has a %s port named %q: connections to them are refused",
				p.Protocol, p.TargetPort.StrVal), portHint(p, selected))
		}
	}
}

// portHint suggests another port of the pods than the one that none of them has.
func portHint(missing v1.ServicePort, pods []*candidate) string {
	var names []string
	for _, c := range pods[:min(len(pods), decode.MaxNames)] {
		for _, container := range podspec.LongRunning(c.pod) {
			for _, p := range container.Ports {
				switch {
				case p.Protocol != missing.Protocol && p.Name == missing.TargetPort.StrVal:
					return fmt.Sprintf("%s is a %s port: set the protocol", p.Name, p.Protocol)
				case p.Protocol == missing.Protocol && p.Name != "" && !slices.Contains(names, p.Name):
					names = append(names, p.Name)
				}
			}
		}
	}
	if hint := decode.DidYouMean(missing.TargetPort.StrVal, names); hint != "" {
		return hint
	}
	return "give a port of the container this name, or use the number"
}
