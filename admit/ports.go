package admit

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit/nodeinfo"
	"github.com/runonce/runonce/internal/podspec"
)

// HostPort is a port of this machine that a pod asks for or a socket listens on.
type HostPort struct {
	Protocol v1.Protocol // TCP when empty
	IP       string      // all addresses of the machine when empty, 0.0.0.0 or ::
	Port     int32
}

// Listener is a socket that listens on this machine.
type Listener struct {
	HostPort
	Pod     types.UID // the pod whose process has the socket open; empty for other programs
	PID     int       // of that process, 0 if it is not known
	Process string    // its name
}

// Listeners returns the sockets on this machine, whose root is fsys, that listen on a host port
// of one of the pods, for Options.Listening. podOf returns the pod that a process belongs to,
// empty for none.
func Listeners(fsys fs.FS, pods []*v1.Pod, podOf func(nodeinfo.Process) types.UID) ([]Listener, error) {
	wanted := portTable{}
	for _, pod := range pods {
		wanted.add(&entry{ports: hostPorts(pod)})
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	sockets, err := nodeinfo.Listening(fsys)
	if err != nil {
		return nil, err
	}
	var all []Listener
	var inodes []uint64
	for _, s := range sockets {
		l := Listener{HostPort: HostPort{Protocol: v1.Protocol(s.Protocol), IP: s.Addr.String(), Port: int32(s.Port)}}
		if len(wanted.conflicts([]HostPort{l.HostPort})) > 0 {
			all, inodes = append(all, l), append(inodes, s.Inode)
		}
	}
	processes := nodeinfo.Holders(fsys, inodes)
	for i := range all {
		for _, p := range processes[inodes[i]] {
			// Several processes may have the socket open. One of a pod decides.
			if all[i].Pod = podOf(p); all[i].PID == 0 || all[i].Pod != "" {
				all[i].PID, all[i].Process = p.PID, p.Name
			}
			if all[i].Pod != "" {
				break
			}
		}
	}
	return all, nil
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
	port   HostPort
	by     *entry
	socket Listener // of the other program
}

// String says who holds which port.
func (h holder) String() string {
	key := h.port.key()
	text := fmt.Sprintf("host port %d/%s is ", key.port, key.protocol)
	address := ""
	if !wildcard(h.port.IP) {
		address = "on " + h.port.IP + " "
	}
	switch {
	case h.by != nil && !h.by.running:
		return text + "requested by pod " + podspec.NameOf(h.by.pod).String() + " too"
	case h.by != nil:
		return text + "in use " + address + "by pod " + podspec.NameOf(h.by.pod).String()
	case h.socket.PID != 0:
		return text + fmt.Sprintf("in use %sby process %s (pid %d)", address, h.socket.Process, h.socket.PID)
	default:
		return strings.TrimSpace(text + "in use " + address)
	}
}

// portTable holds the ports in use.
type portTable map[portKey][]holder

func (t portTable) add(e *entry) {
	for _, p := range e.ports {
		t[p.key()] = append(t[p.key()], holder{port: p, by: e})
	}
}

func (t portTable) remove(e *entry) {
	for _, p := range e.ports {
		t[p.key()] = slices.DeleteFunc(t[p.key()], func(h holder) bool { return h.by == e })
	}
}

// assignSockets makes the sockets of running pods their ports, whether they have declared them
// or not, and returns the others.
func (p *planner) assignSockets() []Listener {
	pods := map[types.UID]*entry{}
	for _, e := range slices.Concat(p.input, p.earlier) {
		if e.running && !podspec.Inactive(e.pod.Status) {
			pods[e.pod.UID] = e
		}
	}
	var others []Listener
	for _, l := range p.o.Listening {
		if e := pods[l.Pod]; l.Pod != "" && e != nil {
			e.ports = append(e.ports, l.HostPort)
		} else {
			others = append(others, l)
		}
	}
	return others
}

// addListening adds the sockets of other programs, except those on a host port of a pod of ours:
// its process may not be known, and the pod has its port all the same.
func (t portTable) addListening(sockets []Listener, ours []*entry) {
	own := portTable{}
	for _, e := range ours {
		own.add(e)
	}
	for _, s := range sockets {
		if len(own.conflicts([]HostPort{s.HostPort})) == 0 {
			t[s.key()] = append(t[s.key()], holder{port: s.HostPort, socket: s})
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
