package compose

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ports converts published ports to host ports. With the network of the machine, nothing needs to be published.
func (p *pod) ports(s *types.ServiceConfig, container *v1.Container) {
	if s.NetworkMode == "host" {
		return
	}
	for _, port := range s.Ports {
		at := field(s, "ports", item(strconv.Itoa(int(port.Target))))
		published := v1.ContainerPort{ContainerPort: int32(port.Target), Protocol: protocol(port.Protocol), HostIP: port.HostIP}
		switch host, err := strconv.ParseUint(port.Published, 10, 16); {
		case port.Published == "" || port.Published == "0":
			continue // see publish
		case err != nil:
			continue
		default:
			published.HostPort = int32(host)
		}
		if n := s.GetScale(); n > 1 {
			p.warn(at, "only one of the %d pods can have port %d of the machine", n, published.HostPort)
		}
		container.Ports = append(container.Ports, published)
	}
}

// publish asks for free ports of the machine where no particular one is published.
func (p *pod) publish(u unit) {
	var items []string
	for i := range u {
		s := &u[i]
		if s.NetworkMode == "host" {
			continue
		}
		for _, port := range s.Ports {
			if _, err := strconv.ParseUint(port.Published, 10, 16); err == nil && port.Published != "0" {
				continue
			}
			if strings.Contains(port.Published, "-") {
				p.warn(field(s, "ports", item(strconv.Itoa(int(port.Target)))), "any free port of the machine is published, not only one of %s", port.Published)
			}
			text := fmt.Sprintf("%d/%s=", port.Target, strings.ToLower(string(protocol(port.Protocol))))
			if port.HostIP != "" {
				text += port.HostIP + ":"
			}
			if text += "auto"; !slices.Contains(items, text) {
				items = append(items, text)
			}
		}
	}
	if len(items) > 0 {
		p.annotations[annotationPublish] = strings.Join(items, ", ")
	}
}

// protocol returns a protocol as Kubernetes writes it.
func protocol(name string) v1.Protocol {
	return v1.Protocol(strings.ToUpper(cmp.Or(name, "tcp")))
}

// servicePorts returns all ports of which the files say that a service has them.
func (c *converter) servicePorts(s *types.ServiceConfig) []v1.ServicePort {
	var all []v1.ServicePort
	add := func(number int32, of v1.Protocol, port types.ServicePortConfig) {
		if slices.ContainsFunc(all, func(p v1.ServicePort) bool { return p.Port == number && p.Protocol == of }) {
			return
		}
		name := strings.ToLower(port.Name)
		if len(validation.IsValidPortName(name)) > 0 || slices.ContainsFunc(all, func(p v1.ServicePort) bool { return p.Name == name }) {
			name = fmt.Sprintf("%s-%d", strings.ToLower(string(of)), number)
		}
		p := v1.ServicePort{Name: name, Port: number, Protocol: of, TargetPort: intstr.FromInt32(number)}
		if port.AppProtocol != "" {
			p.AppProtocol = &port.AppProtocol
		}
		all = append(all, p)
	}
	for _, port := range s.Ports {
		add(int32(port.Target), protocol(port.Protocol), port)
	}
	for _, text := range s.Expose {
		numbers, of, _ := strings.Cut(text, "/")
		from, to, isRange := strings.Cut(numbers, "-")
		first, err := strconv.ParseUint(from, 10, 16)
		last := first
		if isRange && err == nil {
			last, err = strconv.ParseUint(to, 10, 16)
		}
		if err != nil {
			c.warn(field(s, "expose", item(text)), "is no port: it is left out")
			continue
		}
		for n := first; n <= last; n++ {
			add(int32(n), protocol(of), types.ServicePortConfig{})
		}
	}
	return all
}
