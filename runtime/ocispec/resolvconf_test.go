package ocispec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runtime/engine"
)

const managed = `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

func TestHostsFile(t *testing.T) {
	t.Parallel()
	aliases := []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b.c"}}, {IP: "::5", Hostnames: []string{"d"}}}
	tests := []struct {
		name string
		spec v1.PodSpec
		in   engine.Sandbox
		want string
	}{
		{"plain", v1.PodSpec{}, engine.Sandbox{Hostname: "web", IPs: []string{"10.0.0.5", "fd00::5"}}, managed + "10.0.0.5\tweb\nfd00::5\tweb\n"},
		{
			"with a domain",
			v1.PodSpec{},
			engine.Sandbox{Hostname: "web", Domain: "sub.ns.svc.cluster.local", IPs: []string{"10.0.0.5"}},
			managed + "10.0.0.5\tweb.sub.ns.svc.cluster.local\tweb\n",
		},
		{
			"with the full name as host name",
			v1.PodSpec{},
			engine.Sandbox{Hostname: "web.sub.ns", Domain: "sub.ns", IPs: []string{"10.0.0.5"}},
			managed + "10.0.0.5\tweb.sub.ns\tweb\n",
		},
		{
			"aliases",
			v1.PodSpec{HostAliases: aliases},
			engine.Sandbox{Hostname: "web"},
			managed + "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n::5\td\n",
		},
		{
			"host network",
			v1.PodSpec{HostNetwork: true, HostAliases: aliases[:1]},
			engine.Sandbox{Hostname: "node", IPs: []string{"192.0.2.1"}},
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := HostsFile(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: tt.spec}, tt.in, []byte("127.0.0.1 localhost\n"))
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestResolvConf(t *testing.T) {
	t.Parallel()
	host := "# made by hand\n; too\nsearch old.example\nnameserver 10.0.0.1\nnameserver 10.0.0.2\n  search example.com. . corp.example\noptions ndots:2 rotate\noptions ndots:3\n"
	value := "7"
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("s%d.example", i)
	}
	long := strings.Repeat("x", 250)
	tests := []struct {
		name   string
		policy v1.DNSPolicy
		config *v1.PodDNSConfig
		host   string
		want   string
		warns  string
	}{
		{"default", v1.DNSDefault, nil, host, "search example.com corp.example\nnameserver 10.0.0.1\nnameserver 10.0.0.2\noptions ndots:3 rotate\n", ""},
		{"no cluster here", v1.DNSClusterFirst, nil, "nameserver 10.0.0.1", "nameserver 10.0.0.1\n", ""},
		{"none", v1.DNSNone, &v1.PodDNSConfig{Nameservers: []string{"9.9.9.9"}, Searches: []string{"a", "b"}}, host, "search a b\nnameserver 9.9.9.9\n", ""},
		{
			"appended without duplicates", v1.DNSDefault, &v1.PodDNSConfig{
				Nameservers: []string{"10.0.0.2", "9.9.9.9", "8.8.8.8"}, Searches: []string{"corp.example", "new.example"},
				Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: &value}, {Name: "edns0"}},
			}, host,
			"search example.com corp.example new.example\nnameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 9.9.9.9\noptions ndots:7 rotate edns0\n",
			"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 10.0.0.1 10.0.0.2 9.9.9.9",
		},
		{"too many searches", v1.DNSNone, &v1.PodDNSConfig{Searches: many}, "", "search " + strings.Join(many[:32], " ") + "\n", "Search Line limits were exceeded"},
		{
			"searches too long", v1.DNSNone, &v1.PodDNSConfig{Searches: []string{strings.Repeat("y", 254), "a" + long, "b" + long, "c" + long, "d" + long, "e" + long, "f" + long, "g" + long, "h" + long, "i"}}, "",
			"search a" + long + " b" + long + " c" + long + " d" + long + " e" + long + " f" + long + " g" + long + " h" + long + " i\n",
			"Search Line limits were exceeded",
		},
		{"an empty host", v1.DNSDefault, nil, "", "", "no nameserver"},
		{"a stub", v1.DNSDefault, nil, "nameserver 127.0.0.1\n", "nameserver 127.0.0.1\n", "cannot reach nameserver 127.0.0.1"},
		{"no cluster, with a policy that needs one", v1.DNSClusterFirstWithHostNet, nil, "nameserver 10.0.0.1", "nameserver 10.0.0.1\n", "falling back to Default"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := ResolvConf(&v1.Pod{Spec: v1.PodSpec{DNSPolicy: tt.policy, DNSConfig: tt.config}}, DNS{Host: []byte(tt.host)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Error(diff)
			}
			if text := strings.Join(warnings, "\n"); text != "" != (tt.warns != "") || !strings.Contains(text, tt.warns) {
				t.Errorf("warnings %q, want %q", warnings, tt.warns)
			}
		})
	}
}

// The cluster's DNS comes first, unless the pod is on the host network or its policy excludes
// it.
func TestResolvConfOfCluster(t *testing.T) {
	t.Parallel()
	d := DNS{Host: []byte("search corp.example cluster.local\nnameserver 10.0.0.1\noptions rotate\n"), Servers: []string{"10.96.0.10", "fd00::a"}, Domain: "cluster.local"}
	const host = "search corp.example cluster.local\nnameserver 10.0.0.1\noptions rotate\n"
	const cluster = "search ns.svc.cluster.local svc.cluster.local cluster.local corp.example\nnameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\n"
	for _, tt := range []struct {
		policy      v1.DNSPolicy
		hostNetwork bool
		want        string
	}{
		{"", false, cluster},
		{v1.DNSClusterFirst, false, cluster},
		{v1.DNSClusterFirst, true, host},
		{v1.DNSClusterFirstWithHostNet, true, cluster},
		{v1.DNSClusterFirstWithHostNet, false, cluster},
		{v1.DNSDefault, false, host},
		{v1.DNSNone, false, ""},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{DNSPolicy: tt.policy, HostNetwork: tt.hostNetwork}}
		got, warnings, err := ResolvConf(pod, d)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%q: %q, %v", tt.policy, warnings, err)
		}
		if diff := cmp.Diff(tt.want, string(got)); diff != "" {
			t.Errorf("%q, host network %t: %s", tt.policy, tt.hostNetwork, diff)
		}
	}
}

func TestResolvConfErrors(t *testing.T) {
	t.Parallel()
	if _, _, err := ResolvConf(&v1.Pod{}, DNS{Host: []byte("nameserver\n")}); err == nil {
		t.Error("a nameserver line without an address is accepted")
	}
	lines := []string{strings.Repeat("z", 200)}
	for i := range 20 {
		lines = append(lines, fmt.Sprintf("%0200d", i))
	}
	got, _, err := ResolvConf(&v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{Searches: lines}}}, DNS{})
	if n := len(strings.Fields(string(got))) - 1; err != nil || n != 10 {
		t.Errorf("%d searches in at most 2048 bytes, %v, want 10", n, err)
	}
}

func FuzzResolvConf(f *testing.F) {
	f.Add("nameserver 10.0.0.1\nsearch a b\noptions ndots:5 rotate\n", "x.example", "ndots")
	f.Add("search . a.\nsearch\n#\n;\noptions\n", "", "")
	f.Fuzz(func(t *testing.T, host, search, option string) {
		pod := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, DNSConfig: &v1.PodDNSConfig{
			Searches: strings.Fields(search), Options: []v1.PodDNSConfigOption{{Name: option}},
		}}}
		got, _, err := ResolvConf(pod, DNS{Host: []byte(host)})
		if err != nil {
			return
		}
		servers, searches := 0, 0
		for line := range strings.Lines(string(got)) {
			switch word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); word {
			case "nameserver":
				servers++
			case "search":
				searches++
				if len(rest) > maxSearchLine {
					t.Errorf("a search line of %d bytes", len(rest))
				}
			}
		}
		if servers > maxNameservers || searches > 1 {
			t.Errorf("%d nameservers, %d search lines:\n%s", servers, searches, got)
		}
	})
}
