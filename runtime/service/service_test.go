package service

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// newService returns a Service of the default namespace that selects the pods with its name as their label app.
func newService(name string, changes ...func(*v1.Service)) *v1.Service {
	svc := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeClusterIP, Selector: map[string]string{"app": name},
			Ports: []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, change := range changes {
		change(svc)
	}
	return svc
}

func in(namespace string) func(*v1.Service) {
	return func(svc *v1.Service) { svc.Namespace = namespace }
}

func withIPs(ips ...string) func(*v1.Service) {
	return func(svc *v1.Service) { svc.Spec.ClusterIP, svc.Spec.ClusterIPs = ips[0], ips }
}

func withExternalIP(ip string) func(*v1.Service) {
	return func(svc *v1.Service) { svc.Spec.ExternalIPs = []string{ip} }
}

func ofType(kind v1.ServiceType) func(*v1.Service) {
	return func(svc *v1.Service) { svc.Spec.Type = kind }
}

func withNodePort(port int32) func(*v1.Service) {
	return func(svc *v1.Service) { svc.Spec.Type, svc.Spec.Ports[0].NodePort = v1.ServiceTypeNodePort, port }
}

func withFamilies(policy v1.IPFamilyPolicy, families ...v1.IPFamily) func(*v1.Service) {
	return func(svc *v1.Service) { svc.Spec.IPFamilyPolicy, svc.Spec.IPFamilies = &policy, families }
}

// newMember returns a pod of the default namespace with the label app and addresses.
func newMember(name, app string, ready bool, ips ...string) member {
	return member{
		pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": app}},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Ports: []v1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: v1.ProtocolTCP}, {Name: "dns", ContainerPort: 53, Protocol: v1.ProtocolUDP}}}}},
		},
		ips: parse(ips), ready: ready,
	}
}

func hostPort(port int32) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: port, Protocol: v1.ProtocolTCP}}}}},
	}
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func none(*v1.Service) bool { return false }

func TestAllocation(t *testing.T) {
	t.Parallel()
	four, both := prefixes("10.1.0.0/24"), prefixes("10.1.0.0/24", "fd00::/112")
	old := state{Services: []*v1.Service{
		newService("db", withIPs("10.1.0.7"), withFamilies(v1.IPFamilyPolicySingleStack, v1.IPv4Protocol)),
		newService("web", withIPs("10.1.0.9"), withNodePort(30009), withFamilies(v1.IPFamilyPolicySingleStack, v1.IPv4Protocol)),
	}}
	for name, tt := range map[string]struct {
		old    state
		ranges []netip.Prefix
		given  []*v1.Service
		pods   []*v1.Pod
		want   map[string][]string // IPs by name
		err    string
	}{
		"follows from the name":       {ranges: four, given: []*v1.Service{newService("db")}, want: map[string][]string{"db": {"10.1.0.52"}}},
		"as the manifest says":        {ranges: four, given: []*v1.Service{newService("db", withIPs("10.9.9.9"))}, want: map[string][]string{"db": {"10.9.9.9"}}},
		"stays":                       {old: old, ranges: four, given: []*v1.Service{newService("db")}, want: map[string][]string{"db": {"10.1.0.7"}, "web": {"10.1.0.9"}}},
		"not in another range":        {old: old, ranges: prefixes("10.2.0.0/24"), given: []*v1.Service{newService("db")}, want: map[string][]string{"db": {"10.2.0.52"}, "web": {"10.1.0.9"}}},
		"an explicit one comes first": {old: old, ranges: four, given: []*v1.Service{newService("db"), newService("new", withIPs("10.1.0.7"))}, want: map[string][]string{"db": {"10.1.0.52"}, "new": {"10.1.0.7"}, "web": {"10.1.0.9"}}},
		"taken by another input":      {old: old, ranges: four, given: []*v1.Service{newService("new", withIPs("10.1.0.7"))}, err: `Service "new": spec.clusterIP: 10.1.0.7 is that of Service "db"`},
		"a node port that is taken":   {old: old, ranges: four, given: []*v1.Service{newService("new", withNodePort(30009))}, err: `Service "new": spec.ports[0].nodePort: 30009/TCP is that of Service "web"`},
		"a host port":                 {ranges: four, given: []*v1.Service{newService("new", withNodePort(30009))}, pods: []*v1.Pod{hostPort(30009)}, err: `30009/TCP is that of pod "p"`},
		"an external IP":              {old: state{Services: []*v1.Service{newService("db", withExternalIP("192.0.2.1"))}}, ranges: four, given: []*v1.Service{newService("new", withExternalIP("192.0.2.1"))}, err: `Service "new": spec.externalIPs[0]: port 80/TCP of 192.0.2.1 is that of Service "db"`},
		"headless":                    {ranges: four, given: []*v1.Service{newService("db", withIPs("None"))}, want: map[string][]string{"db": {"None"}}},
		"IPv6 by an address":          {ranges: both, given: []*v1.Service{newService("db", withIPs("fd00::5"))}, want: map[string][]string{"db": {"fd00::5"}}},
		"IPv6":                        {ranges: both, given: []*v1.Service{newService("db", withFamilies(v1.IPFamilyPolicySingleStack, v1.IPv6Protocol))}, want: map[string][]string{"db": {"fd00::b9c6"}}},
		"both if there are both":      {ranges: both, given: []*v1.Service{newService("db", withFamilies(v1.IPFamilyPolicyPreferDualStack))}, want: map[string][]string{"db": {"10.1.0.52", "fd00::b9c6"}}},
		"one if there is one":         {ranges: four, given: []*v1.Service{newService("db", withFamilies(v1.IPFamilyPolicyPreferDualStack))}, want: map[string][]string{"db": {"10.1.0.52"}}},
		"both are required":           {ranges: four, given: []*v1.Service{newService("db", withFamilies(v1.IPFamilyPolicyRequireDualStack))}, err: "RequireDualStack needs a range of each family"},
		"no range of the family":      {ranges: four, given: []*v1.Service{newService("db", withFamilies(v1.IPFamilyPolicySingleStack, v1.IPv6Protocol))}, err: "there is no range of IPv6 addresses"},
		"a full range":                {ranges: prefixes("10.1.0.0/30"), given: []*v1.Service{newService("a"), newService("b"), newService("c")}, err: `Service "c": spec.clusterIP: no address is left in 10.1.0.0/30`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.old.define(tt.given, none, tt.ranges, tt.pods)
			if err != nil || tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			ips := map[string][]string{}
			for _, svc := range got.Services {
				ips[svc.Name] = svc.Spec.ClusterIPs
				if svc.Spec.ClusterIP != svc.Spec.ClusterIPs[0] {
					t.Errorf("clusterIP of %s: %s", svc.Name, svc.Spec.ClusterIP)
				}
			}
			if diff := cmp.Diff(tt.want, ips); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if tt.given[0].Spec.IPFamilyPolicy == nil && len(tt.given[0].Spec.IPFamilies) > 0 {
				t.Error("the given Service was changed")
			}
		})
	}
}

func TestNodePorts(t *testing.T) {
	t.Parallel()
	twoPorts := func(svc *v1.Service) {
		svc.Spec.Ports = append(svc.Spec.Ports, v1.ServicePort{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP})
	}
	s, err := state{}.define([]*v1.Service{
		newService("web", ofType(v1.ServiceTypeNodePort), twoPorts), newService("lb", ofType(v1.ServiceTypeLoadBalancer)), newService("db"),
	}, none, prefixes("10.1.0.0/24"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ports := func(s state) map[string][]int32 {
		all := map[string][]int32{}
		for _, svc := range s.Services {
			for _, p := range svc.Spec.Ports {
				all[svc.Name] = append(all[svc.Name], p.NodePort)
			}
		}
		return all
	}
	first := ports(s)
	for _, p := range append(first["web"], first["lb"]...) {
		if p < 30000 || p > 32767 {
			t.Errorf("node port %d", p)
		}
	}
	if first["db"][0] != 0 {
		t.Errorf("a Service of type ClusterIP has the node port %d", first["db"][0])
	}
	again, err := s.define([]*v1.Service{newService("web", ofType(v1.ServiceTypeNodePort), twoPorts)}, none, prefixes("10.1.0.0/24"), nil)
	if diff := cmp.Diff(first, ports(again)); err != nil || diff != "" {
		t.Errorf("the ports have not stayed: %v\n%s", err, diff)
	}
}

// TestRemoved: Services that are gone are removed, and those of other inputs stay.
func TestRemoved(t *testing.T) {
	t.Parallel()
	ranges := prefixes("10.1.0.0/24")
	s, err := state{}.define([]*v1.Service{newService("a"), newService("b"), newService("c")}, none, ranges, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err = s.define([]*v1.Service{newService("a")}, func(svc *v1.Service) bool { return svc.Name != "c" }, ranges, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Services) != 2 || s.Services[0].Name != "a" || s.Services[1].Name != "c" {
		t.Errorf("left: %v", s.Services)
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	target := func(port intstr.IntOrString, protocol v1.Protocol) func(*v1.Service) {
		return func(svc *v1.Service) { svc.Spec.Ports[0].TargetPort, svc.Spec.Ports[0].Protocol = port, protocol }
	}
	members := []member{
		newMember("db-1", "db", true, "10.2.0.3", "fd01::3"), newMember("db-0", "db", true, "10.2.0.2"),
		newMember("db-2", "db", false, "10.2.0.4"), newMember("web", "web", true, "10.2.0.5"),
	}
	for name, tt := range map[string]struct {
		svc  *v1.Service
		want string
	}{
		"those that are ready":     {newService("db"), "10.2.0.2:8080 10.2.0.3:8080"},
		"all that are wanted":      {newService("db", func(svc *v1.Service) { svc.Spec.PublishNotReadyAddresses = true }), "10.2.0.2:8080 10.2.0.3:8080 10.2.0.4:8080"},
		"a named port":             {newService("db", target(intstr.FromString("http"), v1.ProtocolTCP)), "10.2.0.2:8080 10.2.0.3:8080"},
		"of its protocol":          {newService("db", target(intstr.FromString("dns"), v1.ProtocolUDP)), "10.2.0.2:53 10.2.0.3:53"},
		"of another protocol":      {newService("db", target(intstr.FromString("dns"), v1.ProtocolTCP)), ""},
		"of both families":         {newService("db", withFamilies(v1.IPFamilyPolicyPreferDualStack)), "10.2.0.2:8080 10.2.0.3:8080 [fd01::3]:8080"},
		"in another namespace":     {newService("db", in("other")), ""},
		"without a selector":       {newService("db", func(svc *v1.Service) { svc.Spec.Selector = nil }), ""},
		"a headless one has rules": {newService("db", withIPs("None")), "no rules"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := state{}.define([]*v1.Service{tt.svc}, none, prefixes("10.1.0.0/24", "fd00::/112"), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := "no rules"
			for _, p := range s.ports(members) {
				var all []string
				for _, e := range p.Endpoints {
					all = append(all, e.String())
				}
				got = strings.Join(all, " ")
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	named := newMember("db-0", "db", true, "10.2.0.2")
	named.pod.Spec.Hostname, named.pod.Spec.Subdomain = "db-0", "peers"
	elsewhere := newMember("job", "job", true, "10.2.0.9")
	elsewhere.pod.Namespace = "other"
	external := func(target string) func(*v1.Service) {
		return func(svc *v1.Service) { svc.Spec.Type, svc.Spec.ExternalName = v1.ServiceTypeExternalName, target }
	}
	s := state{
		Services: []*v1.Service{
			newService("api", external("db.default.svc.cluster.local")),
			newService("db", withIPs("10.1.0.7"), withFamilies(v1.IPFamilyPolicySingleStack, v1.IPv4Protocol)),
			newService("outside", external("db.example.com")),
			newService("peers", withIPs("None"), withFamilies(v1.IPFamilyPolicySingleStack, v1.IPv4Protocol), func(svc *v1.Service) { svc.Spec.Selector["app"] = "db" }),
			newService("db", in("other"), withIPs("10.1.0.8")),
		},
		External: map[string][]netip.Addr{"default/outside": parse([]string{"192.0.2.1"})},
	}
	members := []member{named, newMember("db-1", "db", false, "10.2.0.3"), newMember("db", "x", true, "10.2.0.4"), elsewhere}
	var b strings.Builder
	for _, e := range s.names("default", "cluster.local", members) {
		b.WriteString(e.ip.String() + " " + strings.Join(e.names, " ") + "\n")
	}
	const want = `10.1.0.7 api.default.svc.cluster.local api.default.svc api.default api
10.1.0.7 db.default.svc.cluster.local db.default.svc db.default db
192.0.2.1 outside.default.svc.cluster.local outside.default.svc outside.default outside
10.2.0.2 db-0.peers.default.svc.cluster.local db-0.peers.default.svc db-0.peers.default db-0.peers peers.default.svc.cluster.local peers.default.svc peers.default peers
10.1.0.8 db.other.svc.cluster.local db.other.svc db.other
10.2.0.2 db-0.default db-0
10.2.0.3 db-1.default db-1
10.2.0.9 job.other
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestHostsFile(t *testing.T) {
	t.Parallel()
	const base = "127.0.0.1\tlocalhost\n10.2.0.2\tweb\n\n# Entries added by HostAliases.\n192.0.2.1\tcache\n"
	names := []entry{{netip.MustParseAddr("10.1.0.7"), []string{"db.default", "db"}}, {netip.MustParseAddr("10.1.0.8"), []string{"cache.default", "cache"}}, {netip.MustParseAddr("10.2.0.2"), []string{"web"}}}
	const section = beginNames + "10.1.0.7\tdb.default\tdb\n10.1.0.8\tcache.default\n" + endNames
	for name, tt := range map[string]struct {
		file  string
		names []entry
		want  string
	}{
		"the first time":             {base, names, base + "\n" + section},
		"the same":                   {base + "\n" + section, names, base + "\n" + section},
		"fewer":                      {base + "\n" + section, names[:1], base + "\n" + beginNames + "10.1.0.7\tdb.default\tdb\n" + endNames},
		"none any more":              {base + "\n" + section, nil, base + "\n" + beginNames + endNames},
		"none at all":                {base, nil, base},
		"what a container has added": {base + "\n" + section + "192.0.2.9\tmine\n", names[:1], base + "\n" + beginNames + "10.1.0.7\tdb.default\tdb\n" + endNames + "192.0.2.9\tmine\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, string(newSection(tt.names).in(nil, []byte(tt.file)))); diff != "" {
				t.Errorf("file (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEnvironment has the example of the kubelet's own test (pkg/kubelet/envvars).
func TestEnvironment(t *testing.T) {
	t.Parallel()
	bar := newService("foo-bar", withIPs("1.2.3.4"), func(svc *v1.Service) {
		svc.Spec.Ports = []v1.ServicePort{{Port: 8080, Protocol: v1.ProtocolTCP}, {Name: "dns-2", Port: 9090, Protocol: v1.ProtocolUDP}}
	})
	six := newService("v6", withIPs("2001:db8::1"))
	services := []*v1.Service{bar, newService("none", withIPs("None")), newService("outside", ofType(v1.ServiceTypeExternalName)), newService("x", in("other"), withIPs("1.2.3.5")), six}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}
	var got []string
	for _, e := range environment(services, pod) {
		got = append(got, e.Name+"="+e.Value)
	}
	want := []string{
		"FOO_BAR_SERVICE_HOST=1.2.3.4", "FOO_BAR_SERVICE_PORT=8080", "FOO_BAR_SERVICE_PORT_DNS_2=9090",
		"FOO_BAR_PORT=tcp://1.2.3.4:8080",
		"FOO_BAR_PORT_8080_TCP=tcp://1.2.3.4:8080", "FOO_BAR_PORT_8080_TCP_PROTO=tcp", "FOO_BAR_PORT_8080_TCP_PORT=8080", "FOO_BAR_PORT_8080_TCP_ADDR=1.2.3.4",
		"FOO_BAR_PORT_9090_UDP=udp://1.2.3.4:9090", "FOO_BAR_PORT_9090_UDP_PROTO=udp", "FOO_BAR_PORT_9090_UDP_PORT=9090", "FOO_BAR_PORT_9090_UDP_ADDR=1.2.3.4",
		"V6_SERVICE_HOST=2001:db8::1", "V6_SERVICE_PORT=80", "V6_PORT=tcp://[2001:db8::1]:80",
		"V6_PORT_80_TCP=tcp://[2001:db8::1]:80", "V6_PORT_80_TCP_PROTO=tcp", "V6_PORT_80_TCP_PORT=80", "V6_PORT_80_TCP_ADDR=2001:db8::1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	off := false
	pod.Spec.EnableServiceLinks = &off
	if all := environment(services, pod); len(all) > 0 {
		t.Errorf("without links: %v", all)
	}
}
