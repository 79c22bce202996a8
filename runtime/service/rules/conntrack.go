package rules

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/network"
)

// forgetStale removes connection tracking entries of UDP ports that lead to what is no endpoint: of an endpoint that
// is gone, or from before the rules. Later datagrams of their clients would still go there, as kube-proxy's
// conntrack.CleanStaleEntries explains.
func forgetStale(f family, ports []Port) error {
	stale, err := newStaleFlows(ports)
	if err != nil {
		return err
	}
	_, err = network.Listed(func() (uint, error) { return netlink.ConntrackDeleteFilters(netlink.ConntrackTable, f.inet, stale) })
	// A kernel that cannot list its entries is no error.
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("removing connection tracking entries of UDP ports: %w", err)
	}
	return nil
}

// staleFlows matches the connections of UDP ports that lead to other endpoints than the port's.
type staleFlows struct {
	frontends map[netip.AddrPort]endpoints
	nodePorts map[uint16]endpoints
	local     map[netip.Addr]bool // the machine's addresses, for NodePorts
}

type endpoints map[netip.AddrPort]bool

func newStaleFlows(ports []Port) (staleFlows, error) {
	s := staleFlows{map[netip.AddrPort]endpoints{}, map[uint16]endpoints{}, map[netip.Addr]bool{}}
	for _, p := range ports {
		ends := endpoints{}
		for _, e := range p.Endpoints {
			ends[e] = true
		}
		for _, ips := range [][]netip.Addr{p.IPs, p.ExternalIPs} {
			for _, ip := range ips {
				s.frontends[netip.AddrPortFrom(ip, p.Port)] = ends
			}
		}
		if p.NodePort != 0 {
			s.nodePorts[p.NodePort] = ends
		}
	}
	if len(s.nodePorts) == 0 {
		return s, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return s, fmt.Errorf("listing the machine's addresses: %w", err)
	}
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			s.local[prefix.Addr()] = true
		}
	}
	return s, nil
}

// MatchConntrackFlow reports whether the flow is to be removed.
func (s staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, from := addrPort(flow.Forward.DstIP, flow.Forward.DstPort), addrPort(flow.Reverse.SrcIP, flow.Reverse.SrcPort)
	ends, ok := s.frontends[to]
	if !ok && (s.local[to.Addr()] || to.Addr().IsLoopback()) {
		ends, ok = s.nodePorts[to.Port()]
	}
	return ok && !ends[from]
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
