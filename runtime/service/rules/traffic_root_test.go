package rules

import (
	"net/netip"
	"testing"
)

// A cluster IP leads to its endpoint: from another pod, from the endpoint itself, and from the machine, whether that
// has a default route or not.
func TestClusterIP(t *testing.T) {
	for name, defaultRoute := range map[string]bool{"default route": true, "no default route": false} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, defaultRoute)
			a, b := m.pods[0], m.pods[1]
			serve(t, a.netns, "a", 8080)
			udp := port(a)
			udp.Name, udp.Protocol = "default/web:dns", "UDP"
			m.apply(t, table(port(a), udp))
			for _, network := range []string{"tcp", "udp"} {
				for _, from := range []string{a.netns, b.netns, m.host} {
					wantAnswer(t, from, network, at(clusterIP, 80), "a 10.88.0.1")
					wantAnswer(t, from, network, at(clusterIP6, 80), "a fd88::1")
				}
			}
		})
	}
}

// What nobody serves is refused at once: a port without endpoints and one that is none.
func TestRefused(t *testing.T) {
	for name, defaultRoute := range map[string]bool{"default route": true, "no default route": false} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, defaultRoute)
			a := m.pods[0]
			none, udp := port(), port()
			none.NodePort, none.ExternalIPs = 30080, []netip.Addr{externalIP, externalIP6}
			udp.Name, udp.Protocol, udp.NodePort = "default/web:dns", "UDP", 30080
			m.apply(t, table(none, udp))
			for range 8 { // more than the kernel sends messages of ICMP in a second
				wantRefused(t, a.netns, "tcp", at(clusterIP, 80))
				wantRefused(t, m.host, "tcp", at(clusterIP, 80))
				wantRefused(t, a.netns, "tcp", at(clusterIP6, 80))
				wantRefused(t, m.host, "tcp", at(clusterIP6, 80))
			}
			for _, ip := range []netip.Addr{clusterIP, clusterIP6} {
				for _, from := range []string{a.netns, m.host} {
					wantRefused(t, from, "tcp", at(ip, 81))
					wantRefused(t, from, "tcp", at(ip.Next(), 80))
					wantRefused(t, from, "udp", at(ip, 80))
					wantRefused(t, from, "udp", at(ip, 81))
				}
			}
			for _, from := range []string{m.outer, a.netns, m.host} {
				wantRefused(t, from, "tcp", hostIP+":30080")
				wantRefused(t, from, "tcp", "["+hostIP6+"]:30080")
				wantRefused(t, from, "udp", hostIP+":30080")
			}
			wantRefused(t, m.host, "tcp", "127.0.0.1:30080")
			wantRefused(t, m.outer, "tcp", at(externalIP, 80))
			wantRefused(t, m.outer, "tcp", at(externalIP6, 80))
			wantRefused(t, a.netns, "tcp", at(externalIP, 80))
		})
	}
}

func TestDebug(t *testing.T) {
	m := newMachine(t, true)
	a := m.pods[0]
	serve(t, a.netns, "a", 8080)
	sticky := port(a, m.pods[1])
	sticky.Name, sticky.Affinity, sticky.Port, sticky.NodePort = "default/sticky:http", 3*3600*1e9, 81, 30080
	none := port()
	none.Port, none.ExternalIPs, none.NodePort, none.KeepSource = 82, []netip.Addr{externalIP, externalIP6}, 30081, true
	m.apply(t, table(port(a), sticky, none))
	t.Log(output(t, m.host, "nft", "list", "ruleset"))
	t.Log(output(t, m.host, "sh", "-c", "cat /proc/sys/net/bridge/bridge-nf-call-iptables; nft list ruleset > /tmp/nftx/rs.nft; nft -f /tmp/nftx/rs.nft"))
}
