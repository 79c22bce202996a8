package rules

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const tab0 = "runonce0-services"

// full is a table with a bit of everything.
func full(m *machine) Table {
	all, sticky, keep := port(m.pods...), port(m.pods...), port(m.pods...)
	all.NodePort = 30080
	sticky.Name, sticky.Port, sticky.Affinity = "default/sticky:http", 81, 3*time.Hour
	keep.Name, keep.Port, keep.NodePort, keep.ExternalIPs, keep.KeepSource = "1st/keep", 82, 30082, []netip.Addr{externalIP, externalIP6}, true
	none := port()
	none.Name, none.Port, none.NodePort, none.ExternalIPs = "default/none", 83, 30083, []netip.Addr{externalIP}
	outside := port()
	outside.IPs = []netip.Addr{netip.MustParseAddr("203.0.113.1")} // of no range
	return table(all, udp(all), sticky, keep, none, outside)
}

// Applying a table again changes nothing, not even the clients' affinity.
func TestApplyTwice(t *testing.T) {
	m := newMachine(t)
	serve(t, m.pods[0].netns, "a", 8080)
	tab := full(m)
	m.apply(t, tab)
	_, _ = ask(m.host, "tcp", at(clusterIP, 81))
	state := func() string {
		return output(t, m.host, "nft", "-t", "list", "ruleset") + m.routes(t)
	}
	before := state()
	m.apply(t, tab)
	if after := state(); after != before {
		t.Errorf("was:\n%s\nis:\n%s", before, after)
	}
	if strings.Contains(before, unsettled) {
		t.Errorf("unsettled:\n%s", before)
	}
}

// Apply restores what somebody has deleted or changed.
func TestApplyRepairs(t *testing.T) {
	for name, damage := range map[string][]string{
		"table":   {"nft", "delete", "table", "ip", tab0},
		"rules":   {"nft", "flush", "table", "ip", tab0},
		"ruleset": {"nft", "flush", "ruleset"},
		"route":   {"ip", "link", "set", "host0", "down"},
		"loss of a chain": {"sh", "-c", "nft flush table ip " + tab0 + " && nft flush map ip " + tab0 + " services && nft flush map ip " + tab0 + " nodeports && nft -a list table ip " +
			tab0 + " | sed -n 's/.*chain \\(port-[^ ]*\\) .*/delete chain ip " + tab0 + " \\1/p' | nft -f -"},
		"another table of that name": {
			"sh", "-c", "nft delete table ip " + tab0 + " && nft add table ip " + tab0 + " && nft add set ip " + tab0 + " services '{ type mark; }' && " +
				"nft add chain ip " + tab0 + " services '{ type filter hook input priority 0; }'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			serve(t, m.pods[0].netns, "a", 8080)
			p := port(m.pods[0])
			p.IPs = p.IPs[:1] // IPv6 forgets the addresses of an interface that is down
			m.apply(t, table(p))
			want := output(t, m.host, "nft", "list", "ruleset")
			output(t, m.host, damage...)
			m.apply(t, table(p))
			wantAnswer(t, m.host, "tcp", at(clusterIP, 80), "a 10.88.0.1")
			if got := output(t, m.host, "nft", "list", "ruleset"); !sameLines(got, want) {
				t.Errorf("was:\n%s\nis:\n%s", want, got)
			}
		})
	}
}

// sameLines compares without regard to the order of tables and elements.
func sameLines(a, b string) bool {
	count := map[string]int{}
	for l := range strings.Lines(a) {
		count[strings.TrimSpace(l)]++
	}
	for l := range strings.Lines(b) {
		count[strings.TrimSpace(l)]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// routes returns the routes, without those of link-local addresses: the kernel adds these when an interface is ready,
// at any time.
func (m *machine) routes(t *testing.T) string {
	t.Helper()
	all := output(t, m.host, "ip", "route")
	for route := range strings.Lines(output(t, m.host, "ip", "-6", "route")) {
		if !strings.HasPrefix(route, "fe80::") {
			all += route
		}
	}
	return all
}

// What is gone from the table is gone from the kernel.
func TestApplyLess(t *testing.T) {
	m := newMachine(t)
	m.apply(t, table(port(m.pods[0])))
	want := output(t, m.host, "nft", "list", "ruleset")
	m.apply(t, full(m))
	m.apply(t, table(port(m.pods[0])))
	if got := output(t, m.host, "nft", "list", "ruleset"); !sameLines(got, want) {
		t.Errorf("was:\n%s\nis:\n%s", want, got)
	}
	only4 := table(port(m.pods[0]))
	only4.Ranges, only4.Ports[0].IPs = only4.Ranges[:1], only4.Ports[0].IPs[:1]
	m.apply(t, only4)
	if got := output(t, m.host, "nft", "list", "tables"); got != "table ip "+tab0+"\n" {
		t.Errorf("without IPv6: %s", got)
	}
}

// Remove leaves nothing, and is no error when there is nothing.
func TestRemove(t *testing.T) {
	m := newMachine(t)
	state := func() string {
		return output(t, m.host, "nft", "list", "ruleset") + m.routes(t)
	}
	present := func() (is bool) {
		t.Helper()
		m.in(t, m.host, func() (err error) {
			is, err = Present(tab0)
			return err
		})
		return is
	}
	before := state()
	other := table(port(m.pods[0]))
	other.Name, other.Ranges = "other", []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}
	for range 2 {
		m.apply(t, full(m))
		m.apply(t, other)
		if !present() || !strings.Contains(state(), "10.96.0.0/16 dev host0") || !strings.Contains(state(), "fd96::/112 dev host0") {
			t.Errorf("after Apply:\n%s", state())
		}
		m.in(t, m.host, func() error { return Remove(context.Background(), tab0) })
		if now := state(); present() || !strings.Contains(now, "10.97.0.0/16 dev host0") {
			t.Errorf("after Remove:\n%s", now)
		}
		m.in(t, m.host, func() error { return Remove(context.Background(), "other") })
		m.in(t, m.host, func() error { return Remove(context.Background(), tab0) })
		if after := state(); after != before {
			t.Errorf("was:\n%s\nis:\n%s", before, after)
		}
	}
}

// nft can list the table, and read what it has listed: people keep their rules that way.
func TestListing(t *testing.T) {
	m := newMachine(t)
	m.apply(t, full(m))
	file := filepath.Join(t.TempDir(), "rules")
	listing := output(t, m.host, "nft", "list", "ruleset")
	if err := os.WriteFile(file, []byte(listing), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, m.outer, "nft", "-f", file)
	if got := output(t, m.outer, "nft", "list", "ruleset"); !sameLines(got, listing) {
		t.Errorf("was:\n%s\nis:\n%s", listing, got)
	}
	output(t, m.host, "nft", "-j", "list", "ruleset")
}
