package network

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/testing/sctptest"
	"github.com/runonce/runonce/runtime/network/namespaces"
)

func withPorts(name string, ports ...v1.ContainerPort) *v1.Pod {
	return newPod(name, func(p *v1.Pod) { p.Spec.Containers[0].Ports = ports })
}

// A host port works from the machine itself, from its pods, and from other machines.
func TestHostPort(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		port := freePort()
		pod := withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)})
		a, b := ensure(t, m, pod), ensure(t, m, newPod("b"))
		serve(t, a, "a")
		everywhere := fmt.Sprintf("%s:%d", hostIP, port)
		for _, from := range []string{"", a.NetNS, b.NetNS, another(t)} {
			wantAnswer(t, from, everywhere, "a")
		}
		wantAnswer(t, "", fmt.Sprintf("127.0.0.1:%d", port), "a")
		if err := holding(m).Remove(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if got, err := get(t, "", everywhere); err == nil {
			t.Errorf("the port of a pod that is gone answers %q", got)
		}
	})
}

// A host port with a host IP works only there, and two pods may use the same number.
func TestHostPortOfAddress(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		port := int32(freePort())
		local := ensure(t, m, withPorts("local", v1.ContainerPort{ContainerPort: 80, HostPort: port, HostIP: "127.0.0.1"}))
		outer := ensure(t, m, withPorts("outer", v1.ContainerPort{ContainerPort: 80, HostPort: port, HostIP: hostIP}))
		all := ensure(t, m, withPorts("all", v1.ContainerPort{ContainerPort: 80, HostPort: port + 1, HostIP: "0.0.0.0"}))
		serve(t, local, "local")
		serve(t, outer, "outer")
		serve(t, all, "all")
		wantAnswer(t, "", fmt.Sprintf("127.0.0.1:%d", port), "local")
		wantAnswer(t, "", fmt.Sprintf("%s:%d", hostIP, port), "outer")
		wantAnswer(t, local.NetNS, fmt.Sprintf("%s:%d", hostIP, port), "outer")
		wantAnswer(t, another(t), fmt.Sprintf("%s:%d", hostIP, port), "outer")
		wantAnswer(t, "", fmt.Sprintf("%s:%d", hostIP, port+1), "all")
	})
}

func TestHostPortUDP(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		// A datagram comes before the pod exists: the kernel must not keep sending them there.
		early := dialUDP(t, "", hostIP+":21530")
		if _, err := early.Write([]byte("too early")); err != nil {
			t.Fatal(err)
		}
		a := ensure(t, m, withPorts("a", v1.ContainerPort{ContainerPort: 53, HostPort: 21530, Protocol: v1.ProtocolUDP, HostIP: hostIP}))
		echoUDP(t, a)
		wantEcho(t, early)
		wantEcho(t, dialUDP(t, "", hostIP+":21530"))
		wantEcho(t, dialUDP(t, another(t), hostIP+":21530"))
	})
}

func dialUDP(t *testing.T, from, addr string) net.Conn {
	t.Helper()
	var c net.Conn
	err := namespaces.Inside([]namespaces.Pin{{Kind: namespaces.Net, Path: from}}, func() (err error) {
		c, err = (&net.Dialer{}).DialContext(t.Context(), "udp4", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// echoUDP returns each datagram to port 53 of the sandbox.
func echoUDP(t *testing.T, sb engine.Sandbox) {
	t.Helper()
	var server net.PacketConn
	err := namespaces.Inside(pins(sb)[:1], func() (err error) {
		server, err = (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "0.0.0.0:53")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(append([]byte("re: "), buf[:n]...), from)
		}
	}()
}

func wantEcho(t *testing.T, client net.Conn) {
	t.Helper()
	if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	// This may report the error of an earlier datagram.
	for tries := 0; ; tries++ {
		_, err := client.Write([]byte("hello"))
		n := 0
		if err == nil {
			n, err = client.Read(buf)
		}
		if err != nil && strings.Contains(err.Error(), "refused") && tries < 3 {
			continue
		}
		if err != nil || string(buf[:n]) != "re: hello" {
			t.Errorf("got %q, %v", buf[:n], err)
		}
		return
	}
}

// Kernels without SCTP have no sockets for it, but the rules can be added.
func TestHostPortSCTP(t *testing.T) {
	const port = 21009
	eachFirewall(t, func(t *testing.T, m *Manager) {
		a := ensure(t, m, withPorts("a", v1.ContainerPort{ContainerPort: sctptest.Port, HostPort: port, Protocol: v1.ProtocolSCTP}))
		target := a.IPs[0] + ":9"
		var rules []string
		for _, program := range [][]string{{"iptables-save", "-t", "nat"}, {"nft", "list", "ruleset"}} {
			out, err := exec.CommandContext(t.Context(), program[0], program[1:]...).Output()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "sctp") && strings.Contains(line, target) && strings.Contains(line, strconv.Itoa(port)) {
					rules = append(rules, strings.TrimSpace(line))
				}
			}
		}
		if len(rules) == 0 {
			t.Errorf("no rule leads SCTP port %d to %s", port, target)
		}
		clients := []string{"", another(t)}
		if !sctptest.Serve(t, a.NetNS, len(clients)) {
			return
		}
		for _, from := range clients {
			sctptest.WantGreeting(t, from, netip.AddrPortFrom(netip.MustParseAddr(hostIP), port))
		}
	})
}

// Without iptables and nft a pod that needs a bridge is refused before anything is made; one
// on the host's network runs.
func TestNoFirewall(t *testing.T) {
	m := newManager(t)
	m.o.Path = t.TempDir()
	before := traces(t, m)
	_, err := holding(m).Ensure(t.Context(), newPod("a"))
	wantPermanent(t, err, "neither iptables nor nft", "spec.hostNetwork")
	after := slices.DeleteFunc(traces(t, m), func(line string) bool { return strings.HasPrefix(line, "file: ") })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	ensure(t, m, newPod("b", func(p *v1.Pod) { p.Spec.HostNetwork = true }))
	m.o.Path = onlyNFT(t)
}

// Pods cannot reach programs that listen on the machine's loopback.
func TestLoopbackIsClosed(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		port := freePort()
		a := ensure(t, m, withPorts("a", v1.ContainerPort{ContainerPort: 80, HostPort: int32(port)}))
		serve(t, a, "a")
		wantAnswer(t, "", fmt.Sprintf("127.0.0.1:%d", port), "a")
		out, err := exec.CommandContext(t.Context(), "cat", "/proc/sys/net/ipv4/conf/"+bridgeOf(t, m).Attrs().Name+"/route_localnet").Output()
		if err != nil || strings.TrimSpace(string(out)) != "1" {
			t.Fatalf("the bridge does not route to the loopback (%s, %v): the test is meaningless", out, err)
		}
		server, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Close() }()
		addr, ok := server.Addr().(*net.TCPAddr)
		if !ok {
			t.Fatal(server.Addr())
		}
		wantUnreachable(t, a, addr.Port)
	})
}

// wantUnreachable tries hard to reach a port of the machine's loopback from a pod.
func wantUnreachable(t *testing.T, sb engine.Sandbox, port int) {
	t.Helper()
	gateway := net.ParseIP(sb.IPs[0]).Mask(net.CIDRMask(20, 32))
	gateway[3]++
	err := namespaces.Inside(pins(sb)[:1], func() error {
		for _, args := range []string{"addr del 127.0.0.1/8 dev lo", "route add 127.0.0.0/8 via " + gateway.String() + " dev eth0"} {
			if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", args, err, out)
			}
		}
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/eth0/route_localnet", []byte("1"), 0); err != nil {
			return err
		}
		local := &net.TCPAddr{IP: net.ParseIP(sb.IPs[0])}
		c, err := (&net.Dialer{LocalAddr: local, Timeout: 2 * time.Second}).DialContext(t.Context(), "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			t.Error("a pod reaches the machine's loopback")
			return c.Close()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
