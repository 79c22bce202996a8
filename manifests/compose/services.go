package compose

import (
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// alias is a name of a service besides its own.
type alias struct {
	at            place // where it is said
	name, service string
}

// wantedAliases returns the names that a service gives to itself or to another one.
func wantedAliases(s *types.ServiceConfig) (all []alias) {
	for _, network := range sorted(s.Networks) {
		if n := s.Networks[network]; n != nil {
			for _, name := range n.Aliases {
				all = append(all, alias{field(s, "networks", network, "aliases", item(name)), name, s.Name})
			}
		}
	}
	if s.ContainerName != "" {
		all = append(all, alias{field(s, "container_name"), s.ContainerName, s.Name})
	}
	for _, link := range s.Links {
		if service, name, ok := strings.Cut(link, ":"); ok {
			all = append(all, alias{field(s, "links", item(name)), name, service})
		}
	}
	return all
}

// findAliases returns the names of services besides their own, with the service that each leads to.
func (c *converter) findAliases() map[string]string {
	taken := map[string]bool{}
	for _, name := range c.names {
		taken[name] = true
	}
	found := map[string]string{}
	for _, name := range sorted(c.Services) {
		s := c.Services[name]
		if c.names[name] != name {
			c.warn(field(&s), "is no name that a Service can have: others find it as %s", c.names[name])
		}
		for _, a := range wantedAliases(&s) {
			own := c.names[a.service]
			switch other, ok := found[a.name]; {
			case a.name == own || ok && other == a.service:
			case len(validation.IsDNS1035Label(a.name)) > 0:
				c.warn(a.at, "%s cannot be the name of a Service: use %s", a.name, own)
			case taken[a.name] || ok:
				c.warn(a.at, "another service has the name %s, which leads only there", a.name)
			default:
				found[a.name] = a.service
			}
		}
	}
	return found
}

// services returns the objects that give the pod the names of its services. They are headless, so that a name leads to all ports of
// the container, as in docker, and from the moment that it runs.
func (c *converter) services(u unit, p *pod) (objects []runtime.Object) {
	if p.spec.HostNetwork {
		return nil
	}
	for i := range u {
		s := &u[i]
		if i > 0 && strings.HasPrefix(s.NetworkMode, types.ServicePrefix) {
			continue // it has the name of the service whose network it uses
		}
		names := []string{c.names[s.Name]}
		for _, alias := range sorted(c.aliases) {
			if c.aliases[alias] == s.Name {
				names = append(names, alias)
			}
		}
		for _, name := range names {
			objects = append(objects, &v1.Service{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: c.meta(name),
				Spec: v1.ServiceSpec{ClusterIP: v1.ClusterIPNone, Selector: p.labels, PublishNotReadyAddresses: true, Ports: c.servicePorts(s)},
			})
		}
	}
	return objects
}
