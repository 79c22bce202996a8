package network

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func cidrs(t *testing.T, all ...string) []*net.IPNet {
	t.Helper()
	nets := make([]*net.IPNet, 0, len(all))
	for _, s := range all {
		_, n, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		nets = append(nets, n)
	}
	return nets
}

// With networks of both families a pod has an address of each, and its host port works with
// both.
func TestDualStack(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		m.o.PodCIDRs = cidrs(t, "10.99.0.0/24", "fd99::/64")
		port := freePort()
		a := ensure(t, m, withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)}))
		b := ensure(t, m, newPod("b"))
		if len(a.IPs) != 2 || !strings.HasPrefix(a.IPs[0], "10.99.0.") || !strings.HasPrefix(a.IPs[1], "fd99::") {
			t.Fatalf("addresses %v", a.IPs)
		}
		serve(t, a, "a")
		for _, from := range []string{"", b.NetNS} {
			wantAnswer(t, from, a.IPs[0]+":80", "a")
			wantAnswer(t, from, "["+a.IPs[1]+"]:80", "a")
		}
		for _, from := range []string{"", a.NetNS, b.NetNS, another(t)} {
			wantAnswer(t, from, fmt.Sprintf("%s:%d", hostIP, port), "a")
			wantAnswer(t, from, fmt.Sprintf("[%s]:%d", hostIP6, port), "a")
		}
		// Packets leave with the machine's address: the neighbour has no route to the pods.
		serveIn(t, another(t), 8099, "neighbour")
		for _, addr := range []string{"192.0.2.1:8099", "[2001:db8::1]:8099"} {
			wantAnswer(t, b.NetNS, addr, "neighbour")
		}
		// The next process uses the bridge as it is.
		next := New(m.o)
		next.o.PodCIDRs = nil
		c := ensure(t, next, newPod("c"))
		if len(c.IPs) != 2 {
			t.Errorf("addresses %v", c.IPs)
		}
		other := New(m.o)
		other.o.PodCIDRs = cidrs(t, "10.98.0.0/24")
		_, err := holding(other).Ensure(t.Context(), newPod("d"))
		wantPermanent(t, err, "10.98.0.0/24", "down --all")
	})
}

func TestOnlyIPv6(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		m.o.PodCIDRs = cidrs(t, "fd98::/64")
		port := freePort()
		a := ensure(t, m, withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port), HostIP: hostIP6}))
		if len(a.IPs) != 1 || !strings.HasPrefix(a.IPs[0], "fd98::") {
			t.Fatalf("addresses %v", a.IPs)
		}
		serve(t, a, "a")
		wantAnswer(t, another(t), fmt.Sprintf("[%s]:%d", hostIP6, port), "a")
		_, err := holding(m).Ensure(t.Context(), withPorts("b", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port), HostIP: hostIP}))
		wantPermanent(t, err, hostIP, "fd98::/64")
		_, err = holding(m).Ensure(t.Context(), withPorts("b", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port), HostIP: "::1"}))
		wantPermanent(t, err, "hostIP ::1")
	})
}

// On a machine without IPv6 the error says so, and nothing is left.
func TestIPv6Disabled(t *testing.T) {
	m := newManager(t)
	const path = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
	if err := os.WriteFile(path, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, []byte("0"), 0); err != nil {
			t.Error(err)
		}
	})
	m.o.PodCIDRs = cidrs(t, "10.97.0.0/24", "fd97::/64")
	_, err := holding(m).Ensure(t.Context(), newPod("a"))
	wantPermanent(t, err, "IPv6 is disabled")
}

func TestTakenCIDR(t *testing.T) {
	m := newManager(t)
	m.o.PodCIDRs = cidrs(t, "192.0.0.0/16")
	_, err := holding(m).Ensure(t.Context(), newPod("a"))
	wantPermanent(t, err, "192.0.0.0/16", "192.0.2.0/24")
}
