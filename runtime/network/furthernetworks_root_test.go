package network

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/network/namespaces"
)

// dataConf is a network besides the machine's own; its plugin cannot set hardware addresses.
func dataConf(m *Manager) string {
	return `{"cniVersion":"1.0.0","name":"data","plugins":[{"type":"macvlan","master":"host0","capabilities":{"ips":true},"dns":{"nameservers":["10.77.0.1"],"search":["data.example"]},` +
		`"ipam":{"type":"host-local","dataDir":"` + m.files.leases() + `","ranges":[[{"subnet":"10.77.0.0/24"}]]}}]}`
}

func wanting(networks string) *v1.Pod {
	return newPod("a", func(p *v1.Pod) { p.Annotations = map[string]string{networksAnnotation: networks} })
}

// interfaces returns the names and addresses of the sandbox's interfaces.
func interfaces(t *testing.T, sb engine.Sandbox) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := namespaces.Inside(pins(sb)[:1], func() error {
		links, err := Listed(netlink.LinkList)
		if err != nil {
			return err
		}
		for _, l := range links {
			addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
			if err != nil {
				return err
			}
			for _, a := range addrs {
				found[l.Attrs().Name] = a.IP.String()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAdditionalNetworks(t *testing.T) {
	m := newManager(t)
	writeConf(t, m, "00-first.conflist", ownBridgeConf(m, ""))
	writeConf(t, m, "10-data.conflist", dataConf(m))
	sb := ensure(t, m, wanting("data, ns/data@wire"))
	if len(sb.IPs) != 1 || !strings.HasPrefix(sb.IPs[0], "10.126.7.") {
		t.Errorf("the pod's addresses are %v, want those of its first network", sb.IPs)
	}
	in := interfaces(t, sb)
	if in["eth0"] != sb.IPs[0] || !strings.HasPrefix(in["net1"], "10.77.0.") || !strings.HasPrefix(in["wire"], "10.77.0.") || in["net1"] == in["wire"] {
		t.Errorf("interfaces %v", in)
	}
	var got []networkStatus
	if err := json.Unmarshal([]byte(sb.Annotations[statusAnnotation]), &got); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].MAC == "" {
			t.Errorf("no hardware address of %s", got[i].Interface)
		}
		got[i].MAC = ""
	}
	dns := &types.DNS{Nameservers: []string{"10.77.0.1"}, Search: []string{"data.example"}}
	want := []networkStatus{
		{Name: "own", Interface: "eth0", IPs: sb.IPs, Default: true},
		{Name: "data", Interface: "net1", IPs: []string{in["net1"]}, DNS: dns},
		{Name: "ns/data", Interface: "wire", IPs: []string{in["wire"]}, DNS: dns},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := leases(t, m); len(got) != 3 {
		t.Errorf("leases %q, want 3", got)
	}
	if err := holding(m).Remove(t.Context(), wanting("")); err != nil {
		t.Fatal(err)
	}
	if got := leases(t, m); len(got) != 0 {
		t.Errorf("leases %q, want none", got)
	}
}

// Additional networks also work with our own bridge.
func TestAdditionalNetworkWithBridge(t *testing.T) {
	m := newManager(t)
	if err := os.MkdirAll(m.o.CNIConfDir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := holding(m).Ensure(t.Context(), wanting(`[{"name":"data"}]`))
	wantPermanent(t, err, networksAnnotation, `"data"`, m.o.CNIConfDir)
	if links := traces(t, m); strings.Contains(strings.Join(links, "\n"), "link: runonce") {
		t.Errorf("a refused pod made %q", links)
	}
	writeConf(t, m, "00-first.conflist", ownBridgeConf(m, ""))
	writeConf(t, m, "10-torn.conflist", "{")
	_, err = holding(m).Ensure(t.Context(), wanting("data"))
	wantPermanent(t, err, `"data"`, "10-torn.conflist")
	writeConf(t, m, "20-data.conflist", dataConf(m))
	_, err = holding(m).Ensure(t.Context(), wanting(`[{"name":"data","mac":"02:00:00:00:00:01"}]`))
	wantPermanent(t, err, `"data"`, "mac", networksAnnotation)
	ensure(t, m, wanting("data"))
}

// When an additional network fails, the pod is disconnected from those before it.
func TestFurtherNetworkFails(t *testing.T) {
	m := newManager(t)
	bin := t.TempDir()
	m.o.CNIBinDirs = append(m.o.CNIBinDirs, bin)
	writeConf(t, m, "00-first.conflist", ownBridgeConf(m, ""))
	writeConf(t, m, "10-data.conflist", dataConf(m))
	writeConf(t, m, "20-bad.conflist", `{"cniVersion":"1.0.0","name":"bad","plugins":[{"type":"failing"}]}`)
	script := "#!/bin/sh\ncat >/dev/null\n[ \"$CNI_COMMAND\" = ADD ] || exit 0\necho '{\"code\":11,\"msg\":\"come again\"}'; exit 1\n"
	exectest.Write(t, filepath.Join(bin, "failing"), script)
	before := traces(t, m)
	_, err := holding(m).Ensure(t.Context(), wanting("data,bad"))
	if err == nil || !strings.Contains(err.Error(), `network "bad"`) || !strings.Contains(err.Error(), "come again") {
		t.Errorf("error %v", err)
	}
	if got := leases(t, m); len(got) != 0 {
		t.Errorf("leases %q, want none", got)
	}
	for _, line := range traces(t, m) {
		if strings.HasPrefix(line, "mount: ") || strings.Contains(line, "veth") && !strings.Contains(strings.Join(before, "\n"), line) {
			t.Errorf("left: %s", line)
		}
	}
}
