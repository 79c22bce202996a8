package network

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/network/namespaces"
)

// insideVariable says that the tests already run in a network namespace of their own.
const insideVariable = "RUNONCE_TEST_NETNS"

// TestMain runs the tests that need root in a network namespace of their own: every rule that
// they leave can be seen there, whatever else runs on the machine.
func TestMain(m *testing.M) {
	flag.Parse()
	switch {
	case os.Getenv(victimVariable) != "":
		beVictim(os.Getenv(victimVariable))
	case os.Geteuid() != 0 || testing.Short() || isFuzzWorker():
		os.Exit(m.Run())
	case os.Getenv(insideVariable) == "":
		os.Exit(rerun())
	default:
		if err := makeHost(); err != nil {
			fmt.Fprintln(os.Stderr, "making a host for the tests:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
}

// isFuzzWorker reports whether the process only runs a fuzz target, for one that has the network
// namespace, and with files that it has got from that.
func isFuzzWorker() bool { return flag.Lookup("test.fuzzworker").Value.String() == "true" }

func rerun() int {
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "running the tests in a network namespace:", err)
		return 1
	}
	return 0
}

// The test host's addresses.
const (
	hostIP  = "192.0.2.2"
	hostIP6 = "2001:db8::2"
)

// neighbour is the network namespace of a machine next to the test host.
var neighbour *os.File

// another returns the path of neighbour's namespace.
func another(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("/proc/self/fd/%d", neighbour.Fd())
}

// makeHost gives the namespace what a host has: a loopback, an interface with addresses,
// default routes, and a machine at the other end of the link.
func makeHost() error {
	dir, err := os.MkdirTemp("", "neighbour")
	if err != nil {
		return err
	}
	if err := namespaces.Make(dir, []namespaces.Kind{namespaces.Net}, ""); err != nil {
		return err
	}
	if neighbour, err = os.Open(filepath.Join(dir, "net")); err != nil {
		return err
	}
	if err := namespaces.Remove(dir); err != nil { // the open file holds it
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "host0", 1400
	wire := &netlink.Veth{LinkAttrs: attrs, PeerName: "wire0", PeerNamespace: netlink.NsFd(neighbour.Fd())}
	if err := netlink.LinkAdd(wire); err != nil {
		return err
	}
	err = namespaces.Inside([]namespaces.Pin{{Kind: namespaces.Net, Path: fmt.Sprintf("/proc/self/fd/%d", neighbour.Fd())}}, func() error {
		return bringUp("wire0", "192.0.2.1/24", "2001:db8::1/64")
	})
	if err != nil {
		return err
	}
	if err := bringUp("lo"); err != nil {
		return err
	}
	if err := bringUp("host0", hostIP+"/24", hostIP6+"/64"); err != nil {
		return err
	}
	link, err := netlink.LinkByName("host0")
	if err != nil {
		return err
	}
	for _, gateway := range []string{"192.0.2.1", "2001:db8::1"} {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}); err != nil {
			return err
		}
	}
	return nil
}

// bringUp gives a link its addresses.
func bringUp(name string, addrs ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD // to be there at once
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}
