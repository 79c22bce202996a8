package admit

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// HostPort is a port of this machine that a pod asks for or a socket listens on.
type HostPort struct {
	Protocol v1.Protocol // TCP when empty
	IP       string      // all addresses of the machine when empty, 0.0.0.0 or ::
	Port     int32
}

// hostPorts returns the host ports of the pod.
func hostPorts(pod *v1.Pod) []HostPort {
	held := podspec.HostPorts(pod)
	ports := make([]HostPort, 0, len(held))
	for _, p := range held {
		ports = append(ports, HostPort{Protocol: p.Protocol, IP: p.HostIP, Port: p.HostPort})
	}
	return ports
}

// portKey is what two ports that conflict have in common.
type portKey struct {
	protocol v1.Protocol
	port     int32
}

func (p HostPort) key() portKey {
	if p.Protocol == "" {
		return portKey{v1.ProtocolTCP, p.Port}
	}
	return portKey{p.Protocol, p.Port}
}

// overlaps says whether two ports of the same key conflict.
func (p HostPort) overlaps(q HostPort) bool {
	return p.IP == q.IP || wildcard(p.IP) || wildcard(q.IP)
}

func wildcard(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }

// holder is a port and the pod that holds it, nil for a socket of another program.
type holder struct {
	port HostPort
	by   *entry
}

// portTable holds the ports in use.
type portTable map[portKey][]holder

func (t portTable) add(e *entry) {
	for _, p := range e.ports {
		t[p.key()] = append(t[p.key()], holder{p, e})
	}
}

func (t portTable) remove(e *entry) {
	for _, p := range e.ports {
		t[p.key()] = slices.DeleteFunc(t[p.key()], func(h holder) bool { return h.by == e })
	}
}

// addListening adds the sockets that already listen, except those on a host port of a pod of
// ours, which are its own.
func (t portTable) addListening(sockets []HostPort, ours []*entry) {
	own := portTable{}
	for _, e := range ours {
		own.add(e)
	}
	for _, s := range sockets {
		if len(own.conflicts([]HostPort{s})) == 0 {
			t[s.key()] = append(t[s.key()], holder{port: s})
		}
	}
}

// conflicts returns the holders of the wanted ports.
func (t portTable) conflicts(wanted []HostPort) []holder {
	var found []holder
	for _, w := range wanted {
		for _, h := range t[w.key()] {
			if w.overlaps(h.port) {
				found = append(found, h)
			}
		}
	}
	return found
}
