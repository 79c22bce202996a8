package network

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/exectest"
)

// writeConf gives the machine a network configuration of its own.
func writeConf(t *testing.T, m *Manager, name, text string) {
	t.Helper()
	if err := os.MkdirAll(m.o.CNIConfDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.o.CNIConfDir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ownBridgeConf is a conflist with the manager's bridge name and lease directory, so that the
// test sees what is left; extra follows the bridge plugin.
func ownBridgeConf(m *Manager, extra string) string {
	return `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"bridge","bridge":"` + BridgeName(m.o.StateDir) +
		`","isGateway":true,"ipam":{"type":"host-local","dataDir":"` + m.files.leases() +
		`","ranges":[[{"subnet":"10.126.7.0/24"}]]}}` + extra + `]}`
}

func TestOwnConf(t *testing.T) {
	m := newManager(t)
	writeConf(t, m, "20-other.conflist", "{")
	writeConf(t, m, "10-own.conflist", ownBridgeConf(m, ""))
	sb := ensure(t, m, newPod("a"))
	if !strings.HasPrefix(sb.IPs[0], "10.126.7.") {
		t.Errorf("address %v", sb.IPs)
	}
	_, err := holding(m).Ensure(t.Context(), withHostPort(t, "b"))
	wantPermanent(t, err, "portMappings")
	other := New(m.o)
	other.o.PodCIDRs = cidrs(t, "10.96.0.0/16")
	_, err = holding(other).Ensure(t.Context(), newPod("b"))
	wantPermanent(t, err, `"own"`, "10.96.0.0/16")
	// The configuration may be removed while pods are attached.
	if err := os.RemoveAll(m.o.CNIConfDir); err != nil {
		t.Fatal(err)
	}
	if err := holding(m).Remove(t.Context(), newPod("a")); err != nil {
		t.Error(err)
	}
	if got := leases(t, m); len(got) != 0 {
		t.Errorf("leases %q, want none", got)
	}
}

// The configuration of a single plugin, the format before conflists.
func TestOwnConfOfOnePlugin(t *testing.T) {
	m := newManager(t)
	writeConf(t, m, "10-own.conf", `{"cniVersion":"0.3.1","name":"own","type":"bridge","bridge":"`+BridgeName(m.o.StateDir)+
		`","isGateway":true,"ipam":{"type":"host-local","dataDir":"`+m.files.leases()+`","subnet":"10.126.8.0/24"}}`)
	a, b := ensure(t, m, newPod("a")), ensure(t, m, newPod("b"))
	serve(t, a, "a")
	wantAnswer(t, b.NetNS, a.IPs[0]+":80", "a")
}

func wantPermanent(t *testing.T, err error, words ...string) {
	t.Helper()
	if !failure.IsPermanent(err) {
		t.Errorf("error %v, want a permanent one", err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestFailedAddIsUndone(t *testing.T) {
	m := newManager(t)
	bin := t.TempDir()
	script := "#!/bin/sh\ncat >/dev/null\n[ \"$CNI_COMMAND\" = ADD ] || exit 0\n" +
		`echo '{"cniVersion":"1.0.0","code":11,"msg":"come again"}'; exit 1` + "\n"
	exectest.Write(t, filepath.Join(bin, "failing"), script)
	m.o.CNIBinDirs = append(m.o.CNIBinDirs, bin)
	m = New(m.o)
	writeConf(t, m, "10.conflist", ownBridgeConf(m, `,{"type":"failing"}`))
	_, err := holding(m).Ensure(t.Context(), newPod("a"))
	if err == nil || !strings.Contains(err.Error(), "come again") || !strings.Contains(err.Error(), `"default/a"`) {
		t.Errorf("error %v", err)
	}
	if failure.IsPermanent(err) {
		t.Error("what a plugin asks to be tried again is permanent")
	}
	if got := leases(t, m); len(got) != 0 {
		t.Errorf("leases %q, want none", got)
	}
	for _, line := range traces(t, m) {
		if strings.HasPrefix(line, "mount: ") || strings.Contains(line, "uid-a") {
			t.Errorf("left: %s", line)
		}
	}
	// Interfaces in the namespace are removed with it; those outside must be removed too.
	links, err := Listed(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == bridgeOf(t, m).Attrs().Index {
			t.Errorf("left on the bridge: %s", l.Attrs().Name)
		}
	}
}

func bridgeOf(t *testing.T, m *Manager) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(BridgeName(m.o.StateDir))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestWhatTheMachineLacks(t *testing.T) {
	m := newManager(t)
	m.o.CNIBinDirs = []string{t.TempDir()}
	m = New(m.o)
	_, err := holding(m).Ensure(t.Context(), newPod("a"))
	wantPermanent(t, err, "bridge", "host-local", "containernetworking-plugins", "spec.hostNetwork")
	ensure(t, m, newPod("b", func(p *v1.Pod) { p.Spec.HostNetwork = true }))
	writeConf(t, m, "10.conflist", "{")
	_, err = holding(m).Ensure(t.Context(), newPod("a"))
	wantPermanent(t, err, "10.conflist")
}

func TestUnknownParameterIsUndone(t *testing.T) {
	m := newManager(t)
	_, err := holding(m).Ensure(t.Context(), newPod("a", func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net.ipv4.no_such", Value: "1"}}}
	}))
	wantPermanent(t, err, "net.ipv4.no_such")
	if got := leases(t, m); len(got) != 0 {
		t.Errorf("leases %q, want none", got)
	}
}

func TestCanceledEnsureIsUndone(t *testing.T) {
	m := newManager(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := holding(m).Ensure(ctx, newPod("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

func TestCleanupKeepsWhatIsUsed(t *testing.T) {
	m := newManager(t)
	sb := ensure(t, m, newPod("a"))
	serve(t, sb, "a")
	if err := m.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, "", sb.IPs[0]+":80", "a")
}
