package podspec

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Publish asks for a free port of the machine for a port of a pod.
type Publish struct {
	Name     string // of the container's port, or Port is its number
	Port     int32
	Protocol v1.Protocol // "" with a name
	HostIP   string      // "" for all addresses of the machine
}

// ParsePublish reads the value of AnnotationPublish: items PORT[/PROTOCOL]=[ADDRESS:]auto between commas. It returns what is
// wrong with it.
func ParsePublish(text string) (all []Publish, problems []string) {
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		p, err := parsePublish(item)
		if err != nil {
			problems = append(problems, fmt.Sprintf("item %q: %v", item, err))
			continue
		}
		all = append(all, p)
	}
	return all, problems
}

func parsePublish(item string) (p Publish, err error) {
	port, to, _ := strings.Cut(item, "=")
	host, auto := "", to
	if i := strings.LastIndex(to, ":"); i >= 0 {
		host, auto = strings.Trim(to[:i], "[]"), to[i+1:]
	}
	if auto != "auto" {
		return p, fmt.Errorf("must be PORT[/PROTOCOL]=[ADDRESS:]auto; for a port of your choice, use hostPort")
	}
	if p.HostIP = host; host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return p, fmt.Errorf("%q is no IP address", host)
		}
	}
	port, protocol, found := strings.Cut(port, "/")
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		if found || port == "" {
			return p, fmt.Errorf("must begin with the number of a port, or with its name alone")
		}
		p.Name = port
		return p, nil
	}
	p.Port, p.Protocol = int32(n), v1.Protocol(strings.ToUpper(protocol))
	if !found {
		p.Protocol = v1.ProtocolTCP
	}
	switch {
	case n < 1 || n > 65535:
		return p, fmt.Errorf("port %d: must be between 1 and 65535", n)
	case p.Protocol != v1.ProtocolTCP && p.Protocol != v1.ProtocolUDP && p.Protocol != v1.ProtocolSCTP:
		return p, fmt.Errorf("protocol %q: must be tcp, udp or sctp", protocol)
	}
	return p, nil
}

// PublishedPort returns the port of a container of the pod's spec that is published, which it adds to the first container if no
// one declares it. It returns what is wrong with that.
func PublishedPort(spec *v1.PodSpec, p Publish) (port *v1.ContainerPort, problem string) {
	if spec.HostNetwork {
		return nil, "a pod on the host's network listens on the machine itself: it has no ports to publish"
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		for j := range c.Ports {
			found := &c.Ports[j]
			if p.Name != found.Name && p.Name != "" || p.Name == "" && (p.Port != found.ContainerPort || p.Protocol != cmp.Or(found.Protocol, v1.ProtocolTCP)) {
				continue
			}
			if found.HostPort != 0 {
				return nil, fmt.Sprintf("port %d of container %q has a hostPort or is published twice", found.ContainerPort, c.Name)
			}
			return found, ""
		}
	}
	if p.Name != "" {
		return nil, fmt.Sprintf("no container has a port with the name %q", p.Name)
	}
	first := &spec.Containers[0]
	first.Ports = append(first.Ports, v1.ContainerPort{ContainerPort: p.Port, Protocol: p.Protocol})
	return &first.Ports[len(first.Ports)-1], ""
}
