package admit

import (
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// HostPort is a port of this machine that a pod asks for or that a socket listens on.
type HostPort struct {
	Protocol v1.Protocol // TCP when empty
	IP       string      // every address of the machine when empty, 0.0.0.0 or ::
	Port     int32
}

// hostPorts returns the ports that the pod holds of its machine.
func hostPorts(pod *v1.Pod) []HostPort {
	held := podspec.HostPorts(pod)
	ports := make([]HostPort, 0, len(held))
	for _, p := range held {
		ports = append(ports, HostPort{Protocol: p.Protocol, IP: p.HostIP, Port: p.HostPort})
	}
	return ports
}

// portKey is what two ports must share to be able to conflict.
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

// overlaps says whether two ports of one key conflict.
func (p HostPort) overlaps(q HostPort) bool {
	return p.IP == q.IP || wildcard(p.IP) || wildcard(q.IP)
}

func wildcard(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }

// holder is one port and who holds it; nil for a socket that is of no pod of ours.
type holder struct {
	port HostPort
	by   *entry
}

// portTable holds the ports that are taken.
type portTable map[portKey][]holder

// take gives the pod its ports.
func (t portTable) take(e *entry) {
	for _, p := range e.ports {
		t[p.key()] = append(t[p.key()], holder{p, e})
	}
}

// free gives the pod's ports back.
func (t portTable) free(e *entry) {
	for _, p := range e.ports {
		held := t[p.key()]
		kept := held[:0]
		for _, h := range held {
			if h.by != e {
				kept = append(kept, h)
			}
		}
		t[p.key()] = kept
	}
}

// listen notes the sockets that listen already, but for those on a port that a pod of
// ours holds: these are its own.
func (t portTable) listen(sockets []HostPort, ours []*entry) {
	own := portTable{}
	for _, e := range ours {
		own.take(e)
	}
	for _, s := range sockets {
		if len(own.conflicts([]HostPort{s})) == 0 {
			t[s.key()] = append(t[s.key()], holder{port: s})
		}
	}
}

// conflicts returns who holds one of the wanted ports.
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
