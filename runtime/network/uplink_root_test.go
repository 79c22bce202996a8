package network

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/network/namespaces"
)

// A VPN that takes over the default route by routes to the halves of all addresses leaves pods a
// network.
func TestHalvesOfDefaultRoute(t *testing.T) {
	m := newManager(t)
	for _, half := range cidrs(t, "0.0.0.0/1", "128.0.0.0/1") {
		route := &netlink.Route{Dst: half, Gw: net.ParseIP("192.0.2.1")}
		if err := netlink.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = netlink.RouteDel(route) }()
	}
	ensure(t, m, newPod("a"))
}

// The pods' MTU is right on a machine with IPv6 alone, and on one with several gateways.
func TestMTUOfDefaultRoute(t *testing.T) {
	roottest.Require(t)
	link, err := netlink.LinkByName("host0")
	if err != nil {
		t.Fatal(err)
	}
	old := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP("192.0.2.1")}
	if err := netlink.RouteDel(old); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := netlink.RouteReplace(old); err != nil {
			t.Error(err)
		}
	}()
	want := link.Attrs().MTU
	if mtu, err := hostMTU(); err != nil || mtu != want {
		t.Errorf("MTU %d, %v without a default route of IPv4, want %d", mtu, err, want)
	}
	hop := func(gateway string) *netlink.NexthopInfo {
		return &netlink.NexthopInfo{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}
	}
	several := &netlink.Route{Dst: cidrs(t, "0.0.0.0/0")[0], MultiPath: []*netlink.NexthopInfo{hop("192.0.2.1"), hop("192.0.2.3")}}
	if err := netlink.RouteAdd(several); err != nil {
		t.Fatal(err)
	}
	if index, err := defaultLink(netlink.FAMILY_V4); err != nil || index != link.Attrs().Index {
		t.Errorf("default link %d, %v, want %d", index, err, link.Attrs().Index)
	}
	if err := netlink.RouteDel(several); err != nil {
		t.Error(err)
	}
}

// The machine's address may be on its loopback, with a default route by interfaces that have none.
func TestHostIPsOfLoopback(t *testing.T) {
	roottest.Require(t)
	dir := t.TempDir()
	if err := namespaces.Make(dir, []namespaces.Kind{namespaces.Net}, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := namespaces.Remove(dir); err != nil {
			t.Error(err)
		}
	}()
	err := namespaces.Inside([]namespaces.Pin{{Kind: namespaces.Net, Path: filepath.Join(dir, "net")}}, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "up0"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "up1"}); err != nil {
			return err
		}
		if err := errors.Join(bringUp("up0"), bringUp("up1"), bringUp("lo", hostIP+"/32")); err != nil {
			return err
		}
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Dst: cidrs(t, "0.0.0.0/0")[0], LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}); err != nil {
			return err
		}
		ips, err := HostIPs()
		if err == nil && !slices.Equal(ips, []string{hostIP}) {
			t.Errorf("addresses %q, want %s", ips, hostIP)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
