package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var (
	podA = pod{"a", "", netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("fd88::2")}
	podB = pod{"b", "", netip.MustParseAddr("10.88.0.3"), netip.MustParseAddr("fd88::3")}
)

// show returns the elements of a plan's sets and maps, and the numbers of rules of the ports' chains, without hashes.
func show(p *plan) []string {
	var lines []string
	for _, s := range p.sets {
		for _, e := range s.elements {
			line := fmt.Sprintf("%s %x", s.Name, e.Key)
			if e.VerdictData != nil {
				line += " " + withoutHash(e.VerdictData.Chain)
			}
			lines = append(lines, line)
		}
	}
	for _, c := range p.chains {
		if strings.HasPrefix(c.Name, "port-") || strings.HasPrefix(c.Name, "outside-") {
			lines = append(lines, fmt.Sprintf("chain %s: %d rules", withoutHash(c.Name), len(c.rules)))
		}
	}
	return lines
}

func withoutHash(name string) string {
	if strings.HasPrefix(name, "outside-") {
		name = name[:strings.LastIndex(name, "-")]
	}
	return name[:strings.LastIndex(name, "-")]
}

func TestPlan(t *testing.T) {
	t.Parallel()
	tab := func(p Port) Table { return Table{Name: "t", Bridge: bridge, Ports: []Port{p}} }
	edit := func(p Port, f func(*Port)) Port {
		f(&p)
		return p
	}
	for name, tt := range map[string]struct {
		family family
		table  Table
		want   []string
	}{
		"endpoints of the family": {ipv4, tab(port(podA, podB)), []string{
			"services 0a60000a0600000000500000 port-default/web/http/tcp",
			"cluster-ips 0a60000a", "cluster-ips 0a60000b",
			"chain port-default/web/http/tcp: 3 rules",
		}},
		"IPv6": {ipv6, tab(port(podA)), []string{
			"services fd9600000000000000000000000000100600000000500000 port-default/web/http/tcp",
			"cluster-ips fd960000000000000000000000000010", "cluster-ips fd960000000000000000000000000011",
			"chain port-default/web/http/tcp: 2 rules",
		}},
		"a Service of the other family": {ipv6, tab(edit(port(podA), func(p *Port) { p.IPs, p.NodePort = p.IPs[:1], 30080 })), nil},
		"only endpoints of the other family": {ipv4, tab(edit(port(podA), func(p *Port) { p.Endpoints, p.NodePort = p.Endpoints[1:], 30080 })), []string{
			"services 0a60000a0600000000500000 port-default/web/http/tcp",
			"nodeports 0600000075800000 port-default/web/http/tcp",
			"cluster-ips 0a60000a", "cluster-ips 0a60000b",
			"refused-nodeports 0600000075800000",
			"chain port-default/web/http/tcp: 1 rules",
		}},
		"external IPs keep the source": {ipv4, tab(edit(port(podA), func(p *Port) {
			p.Protocol, p.KeepSource, p.ExternalIPs, p.NodePort = "UDP", true, []netip.Addr{externalIP, externalIP6}, 30080
		})), []string{
			"services 0a60000a1100000000500000 port-default/web/http/udp",
			"services c63364071100000000500000 outside-port-default/web/http/udp",
			"nodeports 1100000075800000 outside-port-default/web/http/udp",
			"cluster-ips 0a60000a", "cluster-ips 0a60000b",
			"chain port-default/web/http/udp: 2 rules",
			"chain outside-port-default/web/http/udp: 3 rules",
		}},
		"affinity": {ipv4, tab(edit(port(podA, podB), func(p *Port) { p.Affinity = time.Hour })), []string{
			"services 0a60000a0600000000500000 port-default/web/http/tcp",
			"cluster-ips 0a60000a", "cluster-ips 0a60000b",
			"chain port-default/web/http/tcp: 5 rules",
		}},
		"the first of two ports wins": {ipv4, Table{Name: "t", Ports: []Port{port(podA), edit(port(podB), func(p *Port) { p.Name = "default/other:http" })}}, []string{
			"services 0a60000a0600000000500000 port-default/web/http/tcp",
			"cluster-ips 0a60000a", "cluster-ips 0a60000b",
			"chain port-default/web/http/tcp: 2 rules",
			"chain port-default/other/http/tcp: 2 rules",
		}},
		"cluster IPs in ranges, which overlap": {ipv4, Table{Name: "t", Ports: []Port{port(podA)}, Ranges: []netip.Prefix{
			netip.MustParsePrefix("10.96.1.0/24"), netip.MustParsePrefix("10.96.0.7/16"), netip.MustParsePrefix("fd96::/112"),
		}}, []string{
			"services 0a60000a0600000000500000 port-default/web/http/tcp",
			"cluster-ips 0a600000", "cluster-ips 0a610000",
			"chain port-default/web/http/tcp: 2 rules",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, show(newPlan(tt.family, tt.table))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The chains of what has not changed keep their names; those of what has get others.
func TestChainNames(t *testing.T) {
	t.Parallel()
	names := func(edit func(*Table)) []string {
		tab := table(port(podA), udp(port(podA)))
		edit(&tab)
		var all []string
		for _, c := range newPlan(ipv4, tab).chains {
			all = append(all, c.Name)
		}
		return all
	}
	before := names(func(*Table) {})
	for name, tt := range map[string]struct {
		edit    func(*Table)
		changed int
	}{
		"nothing":     {func(*Table) {}, 0},
		"order":       {func(t *Table) { slices.Reverse(t.Ports) }, 0},
		"endpoints":   {func(t *Table) { t.Ports[0] = port(podB) }, 1},
		"an address":  {func(t *Table) { t.Ports[0].IPs = []netip.Addr{clusterIP.Next()} }, 1},
		"a node port": {func(t *Table) { t.Ports[0].NodePort = 30080 }, 1},
		"the bridge":  {func(t *Table) { t.Bridge = "" }, 4}, // services, both that jump there, and refuse-prerouting
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := slices.DeleteFunc(names(tt.edit), func(n string) bool { return slices.Contains(before, n) })
			if len(changed) != tt.changed {
				t.Errorf("changed: %q", changed)
			}
		})
	}
}

// The set of an endpoint's clients stays the same whatever happens to others.
func TestAffinityNames(t *testing.T) {
	t.Parallel()
	names := func(pods ...pod) []string {
		p := port(pods...)
		p.Affinity = time.Hour
		var all []string
		for _, s := range newPlan(ipv4, table(p)).sets {
			if s.HasTimeout {
				all = append(all, s.Name)
			}
		}
		return all
	}
	a, b, both := names(podA), names(podB), names(podA, podB)
	if diff := cmp.Diff(slices.Concat(a, b), both); diff != "" || a[0] == b[0] {
		t.Errorf("of one endpoint %q and %q, of both %q", a, b, both)
	}
}

// Changed UDP ports are those whose chain is new, and all if a process was killed.
func TestChangedUDP(t *testing.T) {
	t.Parallel()
	other := udp(port(podB))
	other.Name = "default/dns"
	p := newPlan(ipv4, table(port(podA), udp(port(podA)), other))
	old := listing{chains: map[string]bool{}}
	if got := len(p.changedUDP(old)); got != 2 {
		t.Errorf("%d ports are new", got)
	}
	for _, c := range p.chains {
		old.chains[c.Name] = true
	}
	if got := p.changedUDP(old); len(got) != 0 {
		t.Errorf("nothing has changed, and yet %v", got)
	}
	old.chains[unsettled] = true
	if got := len(p.changedUDP(old)); got != 2 {
		t.Errorf("%d ports are unsettled", got)
	}
}

func TestStaleFlows(t *testing.T) {
	t.Parallel()
	p := udp(port(podA))
	p.NodePort = 30080
	stale, err := newStaleFlows([]Port{p})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		protocol uint8
		to, from string
		want     bool
	}{
		"to an endpoint":       {unix.IPPROTO_UDP, "10.96.0.10:80", "10.88.0.2:8080", false},
		"to none":              {unix.IPPROTO_UDP, "10.96.0.10:80", "10.88.0.3:8080", true},
		"to its other port":    {unix.IPPROTO_UDP, "10.96.0.10:80", "10.88.0.2:80", true},
		"not translated":       {unix.IPPROTO_UDP, "10.96.0.10:80", "10.96.0.10:80", true},
		"of another address":   {unix.IPPROTO_UDP, "10.96.0.11:80", "10.96.0.11:80", false},
		"of another port":      {unix.IPPROTO_UDP, "10.96.0.10:81", "10.96.0.10:81", false},
		"TCP":                  {unix.IPPROTO_TCP, "10.96.0.10:80", "10.88.0.3:8080", false},
		"node port":            {unix.IPPROTO_UDP, "127.0.0.1:30080", "10.88.0.3:8080", true},
		"of another machine":   {unix.IPPROTO_UDP, "198.51.100.1:30080", "198.51.100.1:30080", false},
		"node port, endpoints": {unix.IPPROTO_UDP, "127.0.0.1:30080", "10.88.0.2:8080", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, from := netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.from)
			flow := &netlink.ConntrackFlow{
				Forward: netlink.IPTuple{Protocol: tt.protocol, DstIP: to.Addr().AsSlice(), DstPort: to.Port()},
				Reverse: netlink.IPTuple{Protocol: tt.protocol, SrcIP: from.Addr().AsSlice(), SrcPort: from.Port()},
			}
			if got := stale.MatchConntrackFlow(flow); got != tt.want {
				t.Errorf("stale: %t", got)
			}
		})
	}
}
