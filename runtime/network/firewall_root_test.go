package network

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/roottest"
)

func runNFT(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// strictRules is a firewall that drops forwarded packets, as of the service nftables or of
// firewalld, on machines that may have iptables as well.
const strictRules = "table inet strict { chain way { type filter hook forward priority 0; policy drop; }; }\n"

// Pods have a network even if the machine's rules drop forwarded packets, and those rules stay.
func TestForwardPolicy(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		runNFT(t, strictRules)
		defer runNFT(t, "delete table inet strict\n")
		port := freePort()
		pod := withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)})
		sb, err := holding(m).Ensure(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, sb, "a")
		wantAnswer(t, another(t), fmt.Sprintf("%s:%d", hostIP, port), "a")
		// A later process does not add its rules again.
		ensure(t, New(m.o), newPod("b"))
		const list = "list table inet strict\n"
		if rules := runNFT(t, list); strings.Count(rules, "accept") != 2 {
			t.Errorf("want 2 rules: %s", rules)
		}
		for _, p := range []*v1.Pod{pod, newPod("b")} {
			if err := holding(m).Remove(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Cleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
		if rules := runNFT(t, list); strings.Contains(rules, "accept") {
			t.Errorf("left: %s", rules)
		}
	})
}

// A table that only its owner can change keeps no pod from starting.
func TestForwardPolicyOfOwner(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		owner := exec.CommandContext(t.Context(), "nft", "-i")
		stdin, err := owner.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = stdin.Close(), owner.Wait() }()
		_, err = io.WriteString(stdin, "add table inet mine { flags owner; }\nadd chain inet mine way { type filter hook forward priority 0; }\n")
		if err != nil {
			t.Fatal(err)
		}
		for exec.CommandContext(t.Context(), "nft", "list", "chain", "inet", "mine", "way").Run() != nil {
			time.Sleep(10 * time.Millisecond)
		}
		ensure(t, m, newPod("a"))
	})
}

// With a policy to drop forwarded packets, as Docker sets it, host ports work from other
// machines and pods reach those. A later process leaves the rules as they are, and so those that
// the machine's owner has inserted before them.
func TestForwardPolicyOfIptables(t *testing.T) {
	m := newManager(t)
	iptables := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "iptables", args...).CombinedOutput()
		if err != nil {
			t.Errorf("iptables %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	iptables("-P", "FORWARD", "DROP")
	defer iptables("-P", "FORWARD", "ACCEPT")
	port := freePort()
	sb := ensure(t, m, withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)}))
	serve(t, sb, "a")
	wantAnswer(t, another(t), fmt.Sprintf("%s:%d", hostIP, port), "a")
	serveIn(t, another(t), 8098, "neighbour")
	wantAnswer(t, sb.NetNS, "192.0.2.1:8098", "neighbour")
	own := []string{"FORWARD", "-i", bridgeOf(t, m).Attrs().Name, "-d", "198.51.100.1", "-j", "DROP"}
	iptables(append([]string{"-I"}, own...)...)
	defer iptables(append([]string{"-D"}, own...)...)
	first := iptables("-S")
	ensure(t, New(m.o), newPod("b"))
	if diff := cmp.Diff(first, iptables("-S")); diff != "" {
		t.Error(diff)
	}
}

// Docker may use the legacy variant of iptables and we the one of nftables: packets pass the rules of
// both.
func TestForwardPolicyOfLegacy(t *testing.T) {
	roottest.Require(t)
	legacy := func(args string) (string, error) {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "iptables-legacy", strings.Fields(args)...).CombinedOutput()
		return string(out), err
	}
	if out, err := legacy("-P FORWARD DROP"); err != nil {
		roottest.Lacks(t, "iptables-legacy: %v: %s", err, out)
	}
	defer func() {
		if out, err := legacy("-P FORWARD ACCEPT"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}()
	eachFirewall(t, func(t *testing.T, m *Manager) {
		m.o.Path += ":" + pathOf(t, "iptables-legacy-restore", "iptables-legacy-save")
		before, _ := legacy("-S")
		port := freePort()
		pod := withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)})
		sb, err := holding(m).Ensure(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, sb, "a")
		wantAnswer(t, another(t), fmt.Sprintf("%s:%d", hostIP, port), "a")
		// A later process does not add its rules again.
		first, _ := legacy("-S")
		ensure(t, New(m.o), newPod("b"))
		second, _ := legacy("-S")
		if diff := cmp.Diff(first, second); diff != "" {
			t.Error(diff)
		}
		for _, p := range []*v1.Pod{pod, newPod("b")} {
			if err := holding(m).Remove(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Cleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
		after, _ := legacy("-S")
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("left (-before +after):\n%s", diff)
		}
	})
}

// pathOf returns a directory with nothing but links to these programs.
func pathOf(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range programs {
		path, err := exec.LookPath(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, p)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// firewalld deletes all rules of iptables when it starts and reloads, and leaves the tables of
// others alone. Where it is installed, pods keep their network.
func TestFirewalldReloads(t *testing.T) {
	m := newManager(t)
	m.o.PodCIDRs = cidrs(t, "10.99.0.0/24", "fd99::/64")
	dir := t.TempDir()
	exectest.Write(t, filepath.Join(dir, "firewalld"), "")
	without, port := m.o, freePort()
	m.o.Path += ":" + dir
	sb := ensure(t, m, withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)}))
	serve(t, sb, "a")
	serveIn(t, another(t), 8096, "neighbour")
	wantNetwork := func() {
		t.Helper()
		wantAnswer(t, another(t), fmt.Sprintf("%s:%d", hostIP, port), "a")
		wantAnswer(t, another(t), fmt.Sprintf("[%s]:%d", hostIP6, port), "a")
		wantAnswer(t, "", fmt.Sprintf("127.0.0.1:%d", port), "a")
		wantAnswer(t, sb.NetNS, "192.0.2.1:8096", "neighbour")
	}
	flushIptables(t)
	wantNetwork()
	// The same if somebody has removed firewalld since.
	runNFT(t, "flush ruleset\n")
	ensure(t, New(without), newPod("b"))
	wantNetwork()
}

// Pods that were started before firewalld was installed get their host ports back in the next run.
func TestFirewalldIsInstalled(t *testing.T) {
	m := newManager(t)
	dir := t.TempDir()
	exectest.Write(t, filepath.Join(dir, "firewalld"), "")
	port := freePort()
	pod := withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)})
	sb := ensure(t, m, pod)
	serve(t, sb, "a")
	flushIptables(t)
	next := New(m.o)
	next.o.Path += ":" + dir
	if _, err := holding(next).Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, another(t), fmt.Sprintf("%s:%d", hostIP, port), "a")
}

func flushIptables(t *testing.T) {
	t.Helper()
	for _, args := range []string{"-t nat -F", "-t nat -X", "-F", "-X"} {
		for _, program := range []string{"iptables", "ip6tables"} {
			if out, err := exec.CommandContext(t.Context(), program, strings.Fields(args)...).CombinedOutput(); err != nil {
				t.Fatalf("%s %s: %v: %s", program, args, err, out)
			}
		}
	}
}

// The rules of a bridge that somebody has deleted are removed all the same.
func TestBridgeIsGone(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		m.o.PodCIDRs = cidrs(t, "10.99.0.0/24", "fd99::/64")
		pod := newPod("a")
		if _, err := holding(m).Ensure(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkDel(bridgeOf(t, m)); err != nil {
			t.Fatal(err)
		}
		if err := holding(m).Remove(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}) // newManagerIn looks for what is left
}

// A program nft that does not work, as with a kernel without nftables, keeps no pod from iptables.
func TestUselessNFT(t *testing.T) {
	m := newManager(t)
	dir := t.TempDir()
	exectest.Write(t, filepath.Join(dir, "nft"), "#!/bin/sh\nexit 1\n")
	m.o.Path = dir + ":" + m.o.Path
	ensure(t, m, newPod("a"))
} // newManager removes the bridge
