// Package rules writes what the Services of a root need into the kernel: tables of nftables and, where the machine
// has no route to the cluster IPs, routes. They outlive the process. A change is one transaction over netlink, which
// takes a millisecond or two where running the programs nft and iptables took many times that.
//
// This is the table for IPv4 of a Service "web", port 80 and node port 30080 with two endpoints, a Service "sticky" with
// session affinity, and a Service "outer" with an external IP and externalTrafficPolicy Local. That for IPv6 has the
// same name and structure. A family that nothing needs has no table.
//
//	table ip runonce0-services {
//		# Where the ports of Services are reached.
//		map services  { type ipv4_addr . inet_proto . inet_service : verdict
//			elements = { 10.96.0.10 . tcp . 80 : goto port-default/web/http/tcp-4c9ad0e1, ... } }
//		map nodeports { type inet_proto . inet_service : verdict
//			elements = { tcp . 30080 : goto port-default/web/http/tcp-4c9ad0e1 } }
//
//		# What is refused: what is left for cluster IPs, and ports elsewhere that have no endpoints.
//		set cluster-ips       { type ipv4_addr; flags interval; elements = { 10.96.0.0/16 } }
//		set refused           { type ipv4_addr . inet_proto . inet_service }
//		set refused-nodeports { type inet_proto . inet_service }
//
//		# The clients of an endpoint with session affinity.
//		set affinity-0f3e... { type ipv4_addr; size 65535; flags dynamic,timeout }
//
//		# Just before the chains of others, such as those of the bridge and of Docker. The bit of the mark goes from
//		# here to postrouting.
//		chain prerouting { type nat hook prerouting priority -110; jump services }
//		chain output     { type nat hook output priority -110; jump services }
//		chain services {
//			ip daddr . meta l4proto . th dport vmap @services
//			# with a bridge, which can route to 127.0.0.1; otherwise with ip daddr != 127.0.0.0/8, and ip6 daddr != ::1
//			fib daddr type local meta l4proto . th dport vmap @nodeports
//		}
//		chain port-default/web/http/tcp-4c9ad0e1 {
//			meta mark set meta mark | 0x10000000
//			meta l4proto tcp numgen random mod 2 0 dnat to 10.88.0.2:8080
//			meta l4proto tcp numgen random mod 1 0 dnat to 10.88.0.3:8080
//		}
//		chain port-default/sticky/http/tcp-97a1f230 {
//			meta mark set meta mark | 0x10000000
//			meta l4proto tcp ip saddr @affinity-0f3e... update @affinity-0f3e... { ip saddr timeout 3h } dnat to 10.88.0.4:80
//			meta l4proto tcp numgen random mod 1 0 update @affinity-0f3e... { ip saddr timeout 3h } dnat to 10.88.0.4:80
//		}
//		chain outside-port-default/outer/http/tcp-5b2e7c11-c4d4a1f0 {
//			fib saddr type local goto port-default/outer/http/tcp-5b2e7c11
//			iifname "runonce0" goto port-default/outer/http/tcp-5b2e7c11
//			meta l4proto tcp numgen random mod 1 0 dnat to 10.88.0.5:80
//		}
//
//		# A pod's answer to another pod would take the short way, over the bridge: it has to come back here.
//		chain postrouting {
//			type nat hook postrouting priority 90
//			meta mark & 0x10000000 == 0 return
//			meta mark set meta mark & 0xefffffff
//			oifname "lo" return
//			masquerade
//		}
//
//		# Before routing, so that no pod gets a redirect to an address that nobody has. What is translated has another
//		# destination by now.
//		chain refuse-prerouting {
//			type filter hook prerouting priority -90
//			iifname "runonce0" ip daddr 127.0.0.0/8 ct state new drop
//			jump refuse
//		}
//		chain refuse-output { type filter hook output priority -90; jump refuse }
//		chain refuse {
//			ip daddr @cluster-ips goto reject-all
//			ct state new ip daddr . meta l4proto . th dport @refused goto reject-all
//			ct state new fib daddr type local meta l4proto . th dport @refused-nodeports goto reject-all
//		}
//		chain reject-all { meta l4proto tcp reject with tcp reset; reject }
//	}
//
// All chains are named for their rules, with a hash at the end that is left out here where it does not help. A chain
// that the kernel has need not be sent again.
//
// A datagram of the machine itself that is refused is an error of the system call that sends it, EPERM and not
// ECONNREFUSED: that is how the kernel drops what has not left yet.
//
// It needs Linux 5.10, which can refuse before routing.
package rules

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
)

// TableName returns the name of the table of the installation whose pods have the bridge.
func TableName(bridge string) string { return bridge + "-services" }

// Table is all that a root's Services need in the kernel.
type Table struct {
	Name string // of the tables, one of the family ip and one of ip6
	// Ranges are those that cluster IPs are allocated from: what goes to one of their addresses, and not to a port
	// of a Service, is refused at once.
	Ranges []netip.Prefix
	// Bridge is that of the pods, empty for none. With one, NodePorts work at 127.0.0.1, and the machine's loopback
	// stays closed to the pods.
	Bridge string
	// Source are the machine's own addresses, with which it reaches cluster IPs when it has no route to them.
	Source []netip.Addr
	// Ports are those of all Services. Of two ports at the same address, or with the same node port, the first is
	// reached.
	Ports []Port
}

// Port is a port of a Service.
type Port struct {
	Name        string // such as default/web:http, which shows in the table
	Protocol    v1.Protocol
	IPs         []netip.Addr // cluster IPs
	ExternalIPs []netip.Addr
	Port        uint16
	NodePort    uint16 // 0 for none
	// Endpoints serve addresses of their own family. An address without any refuses its clients.
	Endpoints []netip.AddrPort
	// Affinity is how long a client stays with an endpoint after its last connection, 0 for not at all.
	Affinity time.Duration
	// KeepSource keeps the client's address in connections that come from outside the machine to NodePort and
	// ExternalIPs: externalTrafficPolicy Local.
	KeepSource bool
}

// Apply makes the kernel do what the table says, and nothing else, in one transaction: it replaces the rules of an
// earlier table of that name, and makes them again if they are gone. Connections stay as they are, except that UDP clients of an endpoint that is gone get
// another one. The caller makes sure that nobody else applies or removes the table meanwhile.
//
// An error that only a change of the machine can cure is permanent.
func Apply(ctx context.Context, t Table) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := dial()
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseLasting() }()
	if err := routeLocalnet(t.Bridge); err != nil {
		return err
	}
	changes, err := newChanges(c, t)
	if err != nil {
		return err
	}
	if err := commit(c, changes); err != nil {
		return err
	}
	if err := ensureRoutes(t); err != nil {
		return err
	}
	return settle(c, changes)
}

// settle makes UDP clients see the changes.
func settle(c *nftables.Conn, changes []change) error {
	for _, ch := range changes {
		if len(ch.changed) == 0 {
			continue
		}
		if err := forgetStale(ch.family, ch.changed); err != nil {
			return err
		}
		c.DelChain(&nftables.Chain{Table: ch.table, Name: unsettled})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("changing the table %s: %w", changes[0].table.Name, err)
	}
	return nil
}

// Present reports whether the kernel has the table.
func Present(name string) (bool, error) {
	c, err := dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = c.CloseLasting() }()
	for _, f := range []family{ipv4, ipv6} {
		if l, err := list(c, f.named(name)); err != nil || l.present {
			return l.present, err
		}
	}
	return false, nil
}

// Remove removes the table and its routes. Absent ones are no error.
func Remove(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := deleteRoutes(name, func(netlink.Route) bool { return true }); err != nil {
		return err
	}
	c, err := dial()
	if err != nil {
		return err
	}
	defer func() { _ = c.CloseLasting() }()
	for _, f := range []family{ipv4, ipv6} {
		l, err := list(c, f.named(name))
		if err != nil {
			return err
		}
		if l.present {
			c.DelTable(f.named(name))
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("removing the table %s: %w", name, err)
	}
	return nil
}
