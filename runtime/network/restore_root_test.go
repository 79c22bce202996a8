package network

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
)

// After all rules were deleted, as a reload of the machine's firewall does, the next run brings
// back those of the bridge and of the pods that are connected, and so does the next pod of a
// process that keeps running.
func TestDeletedRules(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		m.o.PodCIDRs = cidrs(t, "10.99.0.0/24", "fd99::/64")
		port := freePort()
		pod := withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)})
		a := ensure(t, m, pod)
		serve(t, a, "a")
		serveIn(t, another(t), 8097, "neighbour")
		next := New(m.o)
		for i, manager := range []*Manager{next, next, m} {
			runNFT(t, "flush ruleset\n")
			manager.opened = time.Time{} // as if it were long ago
			if i == 0 {                  // The pod itself is enough.
				if _, err := holding(manager).Ensure(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
			} else {
				ensure(t, manager, newPod(fmt.Sprintf("b%d", i)))
			}
			wantAnswer(t, another(t), fmt.Sprintf("%s:%d", hostIP, port), "a")
			wantAnswer(t, another(t), fmt.Sprintf("[%s]:%d", hostIP6, port), "a")
			wantAnswer(t, "", fmt.Sprintf("127.0.0.1:%d", port), "a")
			wantAnswer(t, a.NetNS, "192.0.2.1:8097", "neighbour")
		}
		if err := holding(m).Remove(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if got, err := get(t, "", fmt.Sprintf("%s:%d", hostIP, port)); err == nil {
			t.Errorf("the port of a pod that is gone answers %q", got)
		}
	})
}

// After somebody has disabled the forwarding of packets, the next run enables it again.
func TestForwardingIsDisabled(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		m.o.PodCIDRs = cidrs(t, "10.99.0.0/24", "fd99::/64")
		port := freePort()
		pod := withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)})
		a := ensure(t, m, pod)
		serve(t, a, "a")
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/" + bridgeOf(t, m).Attrs().Name + "/route_localnet"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte("0"), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := holding(New(m.o)).Ensure(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		for _, ip := range []string{hostIP, "[" + hostIP6 + "]"} {
			wantAnswer(t, another(t), fmt.Sprintf("%s:%d", ip, port), "a")
		}
		wantAnswer(t, "", fmt.Sprintf("127.0.0.1:%d", port), "a")
	})
}

// A bridge that somebody has set down, which has lost its addresses of IPv6, works again in the
// next run.
func TestBridgeIsDown(t *testing.T) {
	m := newManager(t)
	m.o.PodCIDRs = cidrs(t, "10.99.0.0/24", "fd99::/64")
	pod := newPod("a")
	a := ensure(t, m, pod)
	serve(t, a, "a")
	if err := netlink.LinkSetDown(bridgeOf(t, m)); err != nil {
		t.Fatal(err)
	}
	if _, err := holding(New(m.o)).Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, "", a.IPs[0]+":80", "a")
	wantAnswer(t, "", "["+a.IPs[1]+"]:80", "a")
}

// Pods stay connected when somebody has deleted their bridge and the next run makes another.
func TestBridgeIsDeleted(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		m.o.PodCIDRs = cidrs(t, "10.99.0.0/24")
		port := freePort()
		pod := withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)})
		a := ensure(t, m, pod)
		serve(t, a, "a")
		if err := netlink.LinkDel(bridgeOf(t, m)); err != nil {
			t.Fatal(err)
		}
		if _, err := holding(New(m.o)).Ensure(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, "", a.IPs[0]+":80", "a")
		for _, from := range []string{a.NetNS, another(t)} {
			wantAnswer(t, from, fmt.Sprintf("%s:%d", hostIP, port), "a")
		}
		wantAnswer(t, "", fmt.Sprintf("127.0.0.1:%d", port), "a")
	})
}
