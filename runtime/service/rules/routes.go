package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/network"
)

// routeProtocol says in the kernel that a route is from this package.
const routeProtocol = 114

// routeMetric says which table a route belongs to. Any other route to the same addresses comes before it.
func routeMetric(table string) int {
	sum := sha256.Sum256([]byte(table))
	return int(binary.BigEndian.Uint32(sum[:]) | 1<<31)
}

// routeLocalnet lets the machine reach NodePorts at 127.0.0.1. A bridge that does not exist yet gets that when it is
// made.
func routeLocalnet(bridge string) error {
	if bridge == "" {
		return nil
	}
	err := os.WriteFile("/proc/sys/net/ipv4/conf/"+bridge+"/route_localnet", []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("letting bridge %q route to 127.0.0.1: %w", bridge, err)
	}
	return nil
}

// routed returns where connections to cluster IPs go: the ranges, and addresses outside of them.
func (t Table) routed() []netip.Prefix {
	var all []netip.Prefix
	add := func(r netip.Prefix) {
		if !slices.ContainsFunc(all, func(o netip.Prefix) bool { return o.Contains(r.Addr()) && o.Bits() <= r.Bits() }) {
			all = append(all, r.Masked())
		}
	}
	for _, r := range t.Ranges {
		add(r)
	}
	for _, p := range t.Ports {
		for _, ip := range p.IPs {
			add(netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return all
}

// ensureRoutes adds routes to cluster IPs that the machine has none to: a connection needs one before its destination
// is translated. Where it leads does not matter, as nothing takes it: what is not translated is refused before. Those to
// addresses that are no cluster IPs any more go.
func ensureRoutes(t Table) error {
	wanted := t.routed()
	err := deleteRoutes(t.Name, func(r netlink.Route) bool {
		return !slices.ContainsFunc(wanted, func(w netip.Prefix) bool { return r.Dst != nil && r.Dst.String() == w.String() })
	})
	if err != nil {
		return err
	}
	for _, r := range wanted {
		to := r.Addr()
		if !r.IsSingleIP() {
			to = to.Next() // the first address may be that of a network
		}
		if _, err := netlink.RouteGet(to.AsSlice()); err == nil {
			continue
		}
		route, ok, err := routeTo(t, r)
		if err != nil {
			return fmt.Errorf("looking for a route to %s: %w", r, err)
		}
		// Without any address of the family nobody can connect.
		if !ok {
			continue
		}
		if err := netlink.RouteReplace(&route); err != nil {
			return fmt.Errorf("adding a route to %s: %w", r, err)
		}
	}
	return nil
}

// routeTo returns a route through an interface that has an address of the family, so that connections have a source
// to which answers return: one of Source, then the bridge's. ok is false if there is none.
func routeTo(t Table, r netip.Prefix) (route netlink.Route, ok bool, err error) {
	bits := r.Addr().BitLen()
	route = netlink.Route{
		Dst:      &net.IPNet{IP: r.Masked().Addr().AsSlice(), Mask: net.CIDRMask(r.Bits(), bits)},
		Protocol: routeProtocol, Priority: routeMetric(t.Name), Scope: netlink.SCOPE_LINK,
	}
	family := map[bool]int{true: netlink.FAMILY_V4, false: netlink.FAMILY_V6}[r.Addr().Is4()]
	addrs, err := network.Listed(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family) })
	if err != nil {
		return route, false, err
	}
	bridge, _ := net.InterfaceByName(t.Bridge)
	for _, source := range slices.Concat(t.Source, []netip.Addr{{}}) {
		for _, a := range addrs {
			ip, _ := netip.AddrFromSlice(a.IP)
			own := ip.Unmap() == source && !source.IsLoopback()
			ofBridge := !source.IsValid() && bridge != nil && a.LinkIndex == bridge.Index && !ip.IsLinkLocalUnicast()
			if (own || ofBridge) && isUp(a.LinkIndex) {
				route.LinkIndex, route.Src = a.LinkIndex, a.IP
				return route, true, nil
			}
		}
	}
	// IPv6 has no routes through the loopback, except to itself.
	if lo, err := net.InterfaceByName("lo"); err == nil && lo.Flags&net.FlagUp != 0 && r.Addr().Is4() {
		route.LinkIndex = lo.Index
		return route, true, nil
	}
	return route, false, nil
}

// isUp reports whether the interface is up and not the loopback.
func isUp(index int) bool {
	link, err := net.InterfaceByIndex(index)
	return err == nil && link.Flags&net.FlagUp != 0 && link.Flags&net.FlagLoopback == 0
}

// Routes returns the routes that ensureRoutes has added for the table.
func Routes(table string) (all []netlink.Route, err error) {
	ours := &netlink.Route{Protocol: routeProtocol}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := network.Listed(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, ours, netlink.RT_FILTER_PROTOCOL)
		})
		if err != nil {
			return nil, fmt.Errorf("listing the machine's routes: %w", err)
		}
		all = append(all, slices.DeleteFunc(routes, func(r netlink.Route) bool { return r.Priority != routeMetric(table) })...)
	}
	return all, nil
}

// deleteRoutes deletes the routes of the table that are chosen.
func deleteRoutes(table string, chosen func(netlink.Route) bool) error {
	routes, err := Routes(table)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if !chosen(r) {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("removing the route to %s: %w", r.Dst, err)
		}
	}
	return nil
}
