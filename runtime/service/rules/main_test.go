package rules

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/network/namespaces"
)

// insideVariable says that the tests already run in a network namespace of their own.
const insideVariable = "RUNONCE_TEST_NETNS"

// TestMain runs the tests that need root in a network namespace of their own.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Geteuid() != 0 || testing.Short() || os.Getenv(insideVariable) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "running the tests in a network namespace:", err)
		os.Exit(1)
	}
}

// The addresses of a machine, of one beside it, and of the machine's bridge and pods.
const (
	bridge   = "runonce0"
	hostIP   = "192.0.2.2"
	hostIP6  = "2001:db8::2"
	outerIP  = "192.0.2.1"
	outerIP6 = "2001:db8::1"
)

var (
	clusterIP, clusterIP6   = netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::10")
	externalIP, externalIP6 = netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:7::7")
)

// machine is a network namespace with a bridge and pods, and another machine beside it.
type machine struct {
	host, outer string // paths of namespaces
	pods        []pod
}

type pod struct {
	name, netns string
	ip, ip6     netip.Addr
}

// newMachine makes a machine with three pods.
func newMachine(t testing.TB) *machine {
	t.Helper()
	roottest.Require(t)
	m := &machine{host: newNamespace(t), outer: newNamespace(t)}
	ip(t, m.host, m.outer, "link set lo up\nlink add "+bridge+" type bridge\n"+
		"addr add 10.88.0.1/24 dev "+bridge+"\naddr add fd88::1/64 dev "+bridge+" nodad\nlink set "+bridge+" up\n"+
		"link add host0 type veth peer name wire0 netns /proc/self/fd/3\n"+
		"addr add "+hostIP+"/24 dev host0\naddr add "+hostIP6+"/64 dev host0 nodad\nlink set host0 up\n")
	ip(t, m.outer, "", "link set lo up\naddr add "+outerIP+"/24 dev wire0\naddr add "+outerIP6+"/64 dev wire0 nodad\nlink set wire0 up\n"+
		"route add "+externalIP.String()+" via "+hostIP+"\nroute add "+externalIP6.String()+" via "+hostIP6+"\n")
	m.in(t, m.host, func() error {
		return errors.Join(
			os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
		)
	})
	for i, name := range []string{"a", "b", "c"} {
		p := pod{name, newNamespace(t), netip.AddrFrom4([4]byte{10, 88, 0, byte(i + 2)}), netip.MustParseAddr(fmt.Sprintf("fd88::%d", i+2))}
		ip(t, m.host, p.netns, fmt.Sprintf("link add veth%s type veth peer name eth0 netns /proc/self/fd/3\nlink set veth%s master %s up\nlink set veth%s type bridge_slave hairpin on\n", name, name, bridge, name))
		ip(t, p.netns, "", fmt.Sprintf("link set lo up\naddr add %s/24 dev eth0\naddr add %s/64 dev eth0 nodad\nlink set eth0 up\n"+
			"route add default via 10.88.0.1\nroute add default via fd88::1\n", p.ip, p.ip6))
		m.pods = append(m.pods, p)
	}
	return m
}

func (m *machine) addDefaultRoutes(t testing.TB) {
	t.Helper()
	ip(t, m.host, "", "route add default via "+outerIP+"\nroute add default via "+outerIP6+"\n")
}

func newNamespace(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := namespaces.Make(dir, []namespaces.Kind{namespaces.Net}, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespaces.Remove(dir) })
	return dir + "/net"
}

// ip runs commands of the program ip in a namespace. Its descriptor 3 is the other one.
func ip(t testing.TB, netns, other, batch string) {
	t.Helper()
	err := inside(netns, func() error {
		cmd := exec.CommandContext(context.Background(), "ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(batch)
		if other != "" {
			f, err := os.Open(other)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			cmd.ExtraFiles = []*os.File{f}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("ip: %v\n%s", err, batch)
	}
}

// output returns what a program prints in a namespace.
func output(t testing.TB, netns string, args ...string) string {
	t.Helper()
	var out []byte
	err := inside(netns, func() (err error) {
		out, err = exec.CommandContext(context.Background(), args[0], args[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v: %s", args, err, out)
	}
	return string(out)
}

func inside(netns string, f func() error) error {
	return namespaces.Inside([]namespaces.Pin{{Kind: namespaces.Net, Path: netns}}, f)
}

func (m *machine) in(t testing.TB, netns string, f func() error) {
	t.Helper()
	if err := inside(netns, f); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) apply(t testing.TB, table Table) {
	t.Helper()
	m.in(t, m.host, func() error { return Apply(context.Background(), table) })
}

// table is one with the ports.
func table(ports ...Port) Table {
	return Table{
		Name: "runonce0-services", Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")},
		Bridge: bridge, Source: []netip.Addr{netip.MustParseAddr(hostIP), netip.MustParseAddr(hostIP6)}, Ports: ports,
	}
}

// port is port 80 of the cluster IPs, which leads to port 8080 of the pods.
func port(pods ...pod) Port {
	p := Port{Name: "default/web:http", Protocol: "TCP", IPs: []netip.Addr{clusterIP, clusterIP6}, Port: 80}
	for _, e := range pods {
		p.Endpoints = append(p.Endpoints, netip.AddrPortFrom(e.ip, 8080), netip.AddrPortFrom(e.ip6, 8080))
	}
	return p
}

// serve answers in a namespace, at a port for TCP and UDP, with a name and the client's address, and to a datagram that is
// not "?" with that too.
func serve(t testing.TB, netns, name string, port uint16) {
	t.Helper()
	var l net.Listener
	var u net.PacketConn
	err := inside(netns, func() (err error) {
		lc := &net.ListenConfig{}
		if l, err = lc.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port)); err != nil {
			return err
		}
		u, err = lc.ListenPacket(context.Background(), "udp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), u.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.WriteString(c, name+" "+hostOf(c.RemoteAddr().String()))
			}()
		}
	}()
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			answer := name + " " + hostOf(from.String())
			if q := string(buf[:n]); q != "?" {
				answer += " " + q
			}
			_, _ = u.WriteTo([]byte(answer), from)
		}
	}()
}

func hostOf(addr string) string {
	a, _ := netip.ParseAddrPort(addr)
	return a.Addr().Unmap().String()
}

// dialFrom connects from a namespace.
func dialFrom(netns, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return dialContext(ctx, netns, network, addr)
}

func dialContext(ctx context.Context, netns, network, addr string) (c net.Conn, err error) {
	err = inside(netns, func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// dialHere connects from the namespace of the calling thread.
func dialHere(addr string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(context.Background(), "tcp", addr)
}

// echo returns what it gets over TCP.
func echo(t testing.TB, netns string, port uint16) {
	t.Helper()
	var l net.Listener
	err := inside(netns, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

// ask returns what a server answers: its name and the address that it sees.
func ask(netns, network, addr string) (string, error) {
	c, err := dialFrom(netns, network, addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	return askOver(c)
}

func askOver(c net.Conn) (string, error) {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "?"); err != nil {
		return "", err
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

func wantAnswer(t testing.TB, netns, network, addr, want string) {
	t.Helper()
	got, err := ask(netns, network, addr)
	if err != nil || got != want {
		t.Errorf("%s %s = %q, %v, want %q", network, addr, got, err, want)
	}
}

// wantRefused wants a client to be told at once that nobody serves.
func wantRefused(t testing.TB, netns, network, addr string) {
	t.Helper()
	got, err := ask(netns, network, addr)
	// What this machine itself sends is refused before it leaves, which the kernel calls not permitted.
	if !errors.Is(err, syscall.ECONNREFUSED) && !(network == "udp" && errors.Is(err, syscall.EPERM)) {
		t.Errorf("%s %s = %q, %v, want that it is refused", network, addr, got, err)
	}
}

func at(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }
