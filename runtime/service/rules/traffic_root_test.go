package rules

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/sctptest"
)

// A cluster IP leads to its endpoint: from another pod, from the endpoint itself, and from the machine, whatever
// routes that has, and whether the kernel filters what stays on the bridge or not.
func TestClusterIP(t *testing.T) {
	for name, prepare := range map[string]func(m *machine, tab *Table){
		"default route":    func(m *machine, _ *Table) { m.addDefaultRoutes(t) },
		"no default route": func(*machine, *Table) {},
		"outside of the ranges": func(_ *machine, tab *Table) {
			tab.Ranges = []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("fd97::/112")}
		},
		"only the bridge": func(m *machine, tab *Table) {
			ip(t, m.host, "", "link del host0\n")
			tab.Source = nil
		},
		"no filter on the bridge": func(m *machine, _ *Table) {
			for _, kind := range []string{"iptables", "ip6tables"} {
				m.in(t, m.host, func() error {
					err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+kind, []byte("0"), 0)
					if os.IsNotExist(err) { // the module is not loaded
						return nil
					}
					return err
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			a, b := m.pods[0], m.pods[1]
			serve(t, a.netns, "a", 8080)
			tab := table(port(a), udp(port(a)))
			prepare(m, &tab)
			m.apply(t, tab)
			for _, network := range []string{"tcp", "udp"} {
				for _, from := range []string{a.netns, b.netns, m.host} {
					wantAnswer(t, from, network, at(clusterIP, 80), "a 10.88.0.1")
					wantAnswer(t, from, network, at(clusterIP6, 80), "a fd88::1")
				}
			}
		})
	}
}

// A route to a cluster IP outside of the ranges goes with the Service.
func TestRoutesFollow(t *testing.T) {
	m := newMachine(t)
	tab := table(port())
	ranges := len(tab.Ranges)
	tab.Ports[0].IPs = append(tab.Ports[0].IPs, netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:9::9"))
	routes := func() (found []string) {
		m.in(t, m.host, func() error {
			all, err := Routes(tab.Name)
			for _, r := range all {
				found = append(found, r.Dst.String())
			}
			return err
		})
		return found
	}
	for range 2 {
		m.apply(t, tab)
		if got := routes(); len(got) != ranges+2 || !slices.Contains(got, "198.51.100.9/32") || !slices.Contains(got, "2001:db8:9::9/128") {
			t.Errorf("routes to %q", got)
		}
	}
	m.apply(t, table(port()))
	if got := routes(); len(got) != ranges {
		t.Errorf("after that, routes to %q", got)
	}
}

// A pod on the machine's own network can be an endpoint.
func TestHostNetworkEndpoint(t *testing.T) {
	m := newMachine(t)
	serve(t, m.host, "host", 8080)
	p := port()
	p.NodePort = 30080
	p.Endpoints = []netip.AddrPort{netip.MustParseAddrPort(hostIP + ":8080"), netip.MustParseAddrPort("[" + hostIP6 + "]:8080")}
	m.apply(t, table(p))
	wantAnswer(t, m.host, "tcp", at(clusterIP, 80), "host "+hostIP)
	wantAnswer(t, m.host, "tcp", at(clusterIP6, 80), "host "+hostIP6)
	wantAnswer(t, m.host, "tcp", "127.0.0.1:30080", "host 127.0.0.1")
	wantAnswer(t, m.pods[0].netns, "tcp", at(clusterIP, 80), "host "+m.pods[0].ip.String())
	wantAnswer(t, m.pods[0].netns, "tcp", at(clusterIP6, 80), "host "+m.pods[0].ip6.String())
}

// What nobody serves is refused at once: a port without endpoints and one that is none.
func TestRefused(t *testing.T) {
	for name, defaultRoute := range map[string]bool{"default route": true, "no default route": false} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if defaultRoute {
				m.addDefaultRoutes(t)
			}
			a := m.pods[0]
			none := port()
			none.NodePort, none.ExternalIPs = 30080, []netip.Addr{externalIP, externalIP6}
			m.apply(t, table(none, udp(none)))
			for range 8 { // more than the kernel sends messages of ICMP in a second
				for _, ip := range []netip.Addr{clusterIP, clusterIP6} {
					wantRefused(t, a.netns, "tcp", at(ip, 80))
					wantRefused(t, m.host, "tcp", at(ip, 80))
				}
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

// A port that was refused is reached as soon as it has an endpoint: no pod has kept a redirect.
func TestServedAfterRefusal(t *testing.T) {
	m := newMachine(t)
	a, b := m.pods[0], m.pods[1]
	serve(t, a.netns, "a", 8080)
	m.apply(t, table(port()))
	for _, ip := range []netip.Addr{clusterIP, clusterIP6} {
		wantRefused(t, b.netns, "tcp", at(ip, 80))
	}
	m.apply(t, table(port(a)))
	wantAnswer(t, b.netns, "tcp", at(clusterIP, 80), "a 10.88.0.1")
	wantAnswer(t, b.netns, "tcp", at(clusterIP6, 80), "a fd88::1")
}

// A NodePort works from outside, from the pods and from the machine itself, also at 127.0.0.1; external IPs too.
// Clients from outside keep their address if they are to.
func TestFromOutside(t *testing.T) {
	for name, keep := range map[string]bool{"Cluster": false, "Local": true} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.addDefaultRoutes(t)
			a, b := m.pods[0], m.pods[1]
			serve(t, a.netns, "a", 8080)
			p := port(a)
			p.NodePort, p.ExternalIPs, p.KeepSource = 30080, []netip.Addr{externalIP, externalIP6}, keep
			m.apply(t, table(p, udp(p)))
			seen, seen6 := "a 10.88.0.1", "a fd88::1"
			if keep {
				seen, seen6 = "a "+outerIP, "a "+outerIP6
			}
			for _, network := range []string{"tcp", "udp"} {
				wantAnswer(t, m.outer, network, hostIP+":30080", seen)
				wantAnswer(t, m.outer, network, "["+hostIP6+"]:30080", seen6)
				wantAnswer(t, m.outer, network, at(externalIP, 80), seen)
				wantAnswer(t, m.outer, network, at(externalIP6, 80), seen6)
				for _, from := range []string{a.netns, b.netns, m.host} {
					wantAnswer(t, from, network, hostIP+":30080", "a 10.88.0.1")
					wantAnswer(t, from, network, "["+hostIP6+"]:30080", "a fd88::1")
					wantAnswer(t, from, network, at(externalIP, 80), "a 10.88.0.1")
					wantAnswer(t, from, network, at(externalIP6, 80), "a fd88::1")
				}
				wantAnswer(t, m.host, network, "127.0.0.1:30080", "a 10.88.0.1")
			}
			wantRefused(t, m.host, "tcp", "[::1]:30080")
		})
	}
}

// Without a bridge, NodePorts at 127.0.0.1 are not translated, because no answer could return.
func TestNodePortWithoutBridge(t *testing.T) {
	m := newMachine(t)
	serve(t, m.pods[0].netns, "a", 8080)
	p := port(m.pods[0])
	p.NodePort = 30080
	tab := table(p)
	tab.Bridge = ""
	m.apply(t, tab)
	wantAnswer(t, m.host, "tcp", hostIP+":30080", "a 10.88.0.1")
	wantRefused(t, m.host, "tcp", "127.0.0.1:30080")
}

// The bridge routes to the machine's loopback, which stays closed to the pods.
func TestLoopbackIsClosed(t *testing.T) {
	m := newMachine(t)
	a := m.pods[0]
	serve(t, m.host, "host", 8081)
	p := port(a)
	p.NodePort = 30080
	m.apply(t, table(p))
	if got := output(t, m.host, "cat", "/proc/sys/net/ipv4/conf/"+bridge+"/route_localnet"); got != "1\n" {
		t.Fatalf("route_localnet = %q: the test is meaningless", got)
	}
	ip(t, a.netns, "", "addr del 127.0.0.1/8 dev lo\nroute add 127.0.0.0/8 via 10.88.0.1 dev eth0 src "+a.ip.String()+"\n")
	m.in(t, a.netns, func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/eth0/route_localnet", []byte("1"), 0) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if c, err := dialContext(ctx, a.netns, "tcp4", "127.0.0.1:8081"); err == nil {
		t.Error("a pod reaches the machine's loopback")
		_ = c.Close()
	}
	// The same way is open where it may be: the rule is what closes it.
	output(t, m.host, "sh", "-c", "nft list ruleset | sed -n 's/.*chain \\(refuse-prerouting[^ ]*\\) .*/flush chain ip "+tab0+" \\1/p' | head -1 | nft -f -")
	if c, err := dialFrom(a.netns, "tcp4", "127.0.0.1:8081"); err != nil {
		t.Errorf("without the rule: %v: the test is meaningless", err)
	} else {
		_ = c.Close()
	}
}

// Connections are spread over all endpoints.
func TestSpread(t *testing.T) {
	m := newMachine(t)
	for _, p := range m.pods {
		serve(t, p.netns, p.name, 8080)
	}
	m.apply(t, table(port(m.pods...)))
	counts := map[string]int{}
	const n = 300
	for range n {
		got, err := ask(m.host, "tcp", at(clusterIP, 80))
		if err != nil {
			t.Fatal(err)
		}
		counts[strings.Fields(got)[0]]++
	}
	// Less than a fifth has a probability below 1e-6.
	for _, p := range m.pods {
		if counts[p.name] < n/5 {
			t.Errorf("of %d connections, endpoints got %v", n, counts)
		}
	}
}

// A UDP client that keeps its socket reaches the endpoint that there is: the first one, and another one when that is
// gone; also when a process was killed before it had looked at the connections.
func TestUDPClientStays(t *testing.T) {
	for name, network := range map[string]string{"ClusterIP": at(clusterIP, 80), "ClusterIP of IPv6": at(clusterIP6, 80), "NodePort": hostIP + ":30080"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			a, b := m.pods[0], m.pods[1]
			serve(t, a.netns, "a", 8080)
			serve(t, b.netns, "b", 8080)
			to := func(pods ...pod) Table {
				p := udp(port(pods...))
				p.NodePort = 30080
				return table(p)
			}
			c, err := dialFrom(m.pods[2].netns, "udp", network)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			want := func(name string) {
				t.Helper()
				if got := answerTo(t, c); !strings.HasPrefix(got, name+" ") {
					t.Errorf("got %q, want %s", got, name)
				}
			}
			_, _ = c.Write([]byte("too early"))
			m.apply(t, to(a))
			want("a")
			m.apply(t, to(b))
			want("b")
			// A process is killed after its transaction.
			tab := to(a)
			m.in(t, m.host, func() error {
				conn, err := dial()
				if err != nil {
					return err
				}
				defer func() { _ = conn.CloseLasting() }()
				changes, err := newChanges(conn, tab)
				if err != nil {
					return err
				}
				return commit(conn, changes)
			})
			m.apply(t, tab)
			want("a")
			m.apply(t, to())
			if got := answerTo(t, c); got != "" {
				t.Errorf("without endpoints, %q answers", got)
			}
			m.apply(t, to(b))
			want("b")
		})
	}
}

// answerTo sends datagrams until one is answered, and returns that answer: answers to others may come late, and so may
// errors. It is empty if all are refused.
func answerTo(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for try := range 3 {
		question := fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano())
		if _, err := c.Write([]byte(question)); err != nil {
			continue
		}
		for {
			n, err := c.Read(buf)
			if err == nil && !strings.HasSuffix(string(buf[:n]), question) {
				continue
			}
			if err == nil {
				return string(buf[:n])
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("try %d: %v", try, err)
			}
			break
		}
	}
	return ""
}

// A connection stays when Apply replaces the rules, even when its endpoint is one no more.
func TestConnectionStays(t *testing.T) {
	m := newMachine(t)
	a, b := m.pods[0], m.pods[1]
	echo(t, a.netns, 8080)
	m.apply(t, table(port(a)))
	c, err := dialFrom(b.netns, "tcp", at(clusterIP, 80))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i, tab := range []Table{table(port(a)), table(port(a, b)), table(port(b)), table()} {
		m.apply(t, tab)
		if got, err := askOver(c); err != nil || got != "?" {
			t.Errorf("after Apply %d: %q, %v", i, got, err)
		}
	}
}

// TestSCTP: kernels without SCTP have no sockets for it, but the rules can be added.
func TestSCTP(t *testing.T) {
	m := newMachine(t)
	p := port(m.pods[0])
	p.Protocol = "SCTP"
	for i := range p.Endpoints {
		p.Endpoints[i] = netip.AddrPortFrom(p.Endpoints[i].Addr(), sctptest.Port)
	}
	m.apply(t, table(p))
	rules := output(t, m.host, "nft", "list", "table", "ip", tab0)
	for _, want := range []string{"10.96.0.10 . sctp . 80 : goto", "meta l4proto sctp numgen random mod 1 0 dnat to 10.88.0.2:9"} {
		if !strings.Contains(rules, want) {
			t.Errorf("no %q in:\n%s", want, rules)
		}
	}
	clients := []string{m.host, m.pods[1].netns, m.pods[0].netns}
	if !sctptest.Serve(t, m.pods[0].netns, len(clients)) {
		return
	}
	for _, from := range clients {
		sctptest.WantGreeting(t, from, netip.AddrPortFrom(clusterIP, 80))
	}
}

func udp(p Port) Port {
	p.Name, p.Protocol = fmt.Sprintf("%s-udp", p.Name), "UDP"
	return p
}
