package network

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/exectest"
)

const listed = `table ip nat { # handle 2
	chain POSTROUTING { # handle 1
		type nat hook postrouting priority srcnat; policy accept;
	}
}
table inet strict { # handle 12
	set ports { # handle 5
		type inet_service
		elements = { 22, 80 }
	}

	chain way { # handle 1
		type filter hook forward priority filter; policy drop;
		iifname "runonce0" accept comment "runonce runonce0" # handle 7
		oifname "runonce0" accept comment "runonce runonce0" # handle 8
		tcp dport @ports accept # handle 9
	}
}
table ip6 other { # handle 13
	chain forward { # handle 1
		type filter hook forward priority filter; policy accept;
	}
}
table inet firewalld { # handle 15 progname firewalld
	flags owner,persist

	chain filter_FORWARD { # handle 1
		type filter hook forward priority filter + 10; policy accept;
		reject with icmpx admin-prohibited # handle 2
	}
}
table ip filter { # handle 16
	chain FORWARD { # handle 1
		type filter hook forward priority filter; policy drop;
		iifname "runonce0"  counter packets 5 bytes 395 accept # handle 6
		oifname "runonce0" tcp dport 22  counter packets 6 bytes 406 accept # handle 7
	}
}
table bridge l2 { # handle 14
	chain forward { # handle 1
		type filter hook forward priority filter; policy accept;
	}
}
`

func TestForwardScript(t *testing.T) {
	t.Parallel()
	chains := parseChains(listed)
	both := podBridge{Name: "runonce0", Subnets: []*net.IPNet{mustSubnet(t, "10.62.0.0/20"), mustSubnet(t, "fd00::/64")}}
	const want = `insert rule ip6 other forward iifname "runonce0" accept comment "runonce runonce0"
insert rule ip6 other forward oifname "runonce0" accept comment "runonce runonce0"
insert rule ip filter FORWARD oifname "runonce0" accept comment "runonce runonce0"
`
	script, closed := forwardScript(both, chains)
	if diff := cmp.Diff(want, script); diff != "" {
		t.Error(diff)
	}
	// Nobody but firewalld can change its table, which says nothing of the bridge yet.
	if diff := cmp.Diff([]string{"inet firewalld"}, closed); diff != "" {
		t.Error(diff)
	}
	trusted := strings.Replace(listed, "reject with", "iifname \"runonce0\" goto filter_FWD_trusted # handle 3\nreject with", 1)
	if _, closed := forwardScript(both, parseChains(trusted)); len(closed) > 0 {
		t.Errorf("still warns of %v", closed)
	}
	// What we add to a table of firewalld without an owner goes with its next reload.
	open := strings.Replace(listed, "flags owner,persist", "", 1)
	script, closed = forwardScript(both, parseChains(open))
	if !strings.Contains(script, "insert rule inet firewalld filter_FORWARD oifname") || !slices.Equal(closed, []string{"inet firewalld"}) {
		t.Errorf("no rules or no warning: %v, %s", closed, script)
	}
	added := strings.Replace(open, "reject with", "iifname \"runonce0\" accept comment \"runonce runonce0\" # handle 3\nreject with", 1)
	if _, closed := forwardScript(both, parseChains(added)); !slices.Equal(closed, []string{"inet firewalld"}) {
		t.Errorf("our own rule is taken for one of firewalld: %v", closed)
	}
	both.Subnets = both.Subnets[:1]
	if script, _ := forwardScript(both, chains); strings.Contains(script, "ip6") {
		t.Errorf("rules of IPv6 for pods without it: %s", script)
	}
	const deleted = "delete rule inet strict way handle 7\ndelete rule inet strict way handle 8\n"
	if diff := cmp.Diff(deleted, deletions(chains, "runonce runonce0")); diff != "" {
		t.Error(diff)
	}
	if got := deletions(chains, ruleComment("other")); got != "" {
		t.Errorf("the rules of another bridge: %q", got)
	}
}

func TestPortsScript(t *testing.T) {
	t.Parallel()
	p := portRules{Bridge: "runonce0", UID: "u", IPs: []string{"10.62.0.2", "fd00::2"}, Ports: []portMapping{
		{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"},
		{HostPort: 53, ContainerPort: 5353, Protocol: "udp", HostIP: "192.0.2.1"},
		{HostPort: 9, ContainerPort: 9, Protocol: "sctp", HostIP: "::"},
		{HostPort: 7, ContainerPort: 7, Protocol: "tcp", HostIP: "2001:db8::1"},
	}}
	const want = `add rule inet runonce0 hostports meta nfproto ipv4 tcp dport 8080 dnat ip to 10.62.0.2:80 comment "pod u"
add rule inet runonce0 hostports ip daddr 192.0.2.1 udp dport 53 dnat ip to 10.62.0.2:5353 comment "pod u"
add rule inet runonce0 hostports meta nfproto ipv6 tcp dport 8080 dnat ip6 to [fd00::2]:80 comment "pod u"
add rule inet runonce0 hostports meta nfproto ipv6 sctp dport 9 dnat ip6 to [fd00::2]:9 comment "pod u"
add rule inet runonce0 hostports ip6 daddr 2001:db8::1 tcp dport 7 dnat ip6 to [fd00::2]:7 comment "pod u"
`
	if diff := cmp.Diff(want, p.script()); diff != "" {
		t.Error(diff)
	}
	p.UID = strings.Repeat("u", 200)
	if n := len(p.comment()); n > 128 {
		t.Errorf("a comment of %d bytes", n)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	nets := func(all ...string) (list []*net.IPNet) {
		for _, s := range all {
			list = append(list, mustSubnet(t, s))
		}
		return list
	}
	const v4, v6, other = "10.1.0.0/16", "fd01::/64", "10.9.0.0/16"
	for _, tt := range []struct {
		name            string
		subnets, wanted []*net.IPNet
		want            bool
	}{
		{"none", nil, nil, false},
		{"any", nets(v4), nil, true},
		{"as wanted", nets(v4, v6), nets(v4, v6), true},
		{"unfinished", nets(v6), nets(v4, v6), false},
		{"was down", nets(v4), nets(v4, v6), false},
		{"another one", nets(other), nets(v4, v6), true},
		{"less is wanted", nets(v4, v6), nets(v4), true},
	} {
		if got := bridgeComplete(tt.subnets, tt.wanted); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func FuzzParseChains(f *testing.F) {
	f.Add(listed)
	f.Add("chain a {\n}\ntype filter hook forward\ntable inet x {\nchain y {\ntype nat hook z\n")
	f.Fuzz(func(t *testing.T, listing string) {
		for line := range strings.Lines(deletions(parseChains(listing), "c")) {
			if !strings.HasPrefix(line, "delete rule ") {
				t.Errorf("%q", line)
			}
		}
		_, _ = forwardScript(podBridge{Name: "b"}, parseChains(listing))
	})
}

// After its process is killed, nft still holds the pod's lock until it has ended: the next
// process must not work with rules that are just being changed.
func TestPortsInheritLock(t *testing.T) {
	dir := t.TempDir()
	held := filepath.Join(dir, "held")
	script := "#!/bin/sh\ncat >/dev/null; readlink /proc/self/fd/3 >>" + held + "\n" +
		`[ "$1$2" = -a-t ] && printf 'table inet b {\nchain hostports {\nx comment "pod u" # handle 3\n}\n}\n'; exit 0` + "\n"
	exectest.Write(t, filepath.Join(dir, "nft"), script)
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }() // nothing was written
	p := portRules{
		Path: dir, Lock: lock, Bridge: "b", UID: "u", IPs: []string{"10.62.0.2"},
		Ports: []portMapping{{HostPort: 80, ContainerPort: 80, Protocol: "tcp"}},
	}
	if err := p.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(held)
	if want := strings.Repeat(lock.Name()+"\n", 3); err != nil || string(got) != want {
		t.Errorf("nft inherited %q (%v), want %q", got, err, want)
	}
}
