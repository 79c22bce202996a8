package network

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// insideVariable says that the tests already run in a network namespace of their own.
const insideVariable = "RUNONCE_TEST_NETNS"

// TestMain runs the tests in a network namespace of their own, as far as root may: what
// they leave on the machine can be seen to the last rule then, whatever runs beside them.
func TestMain(m *testing.M) {
	flag.Parse()
	switch {
	case os.Getenv(victimVariable) != "":
		beVictim(os.Getenv(victimVariable))
	case os.Geteuid() != 0 || testing.Short():
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

// makeHost gives the namespace what a host has: a loopback, an interface with an address,
// and a default route.
func makeHost() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "host0", 1400
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "wire0"}); err != nil {
		return err
	}
	wire, err := netlink.LinkByName("wire0")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(wire); err != nil {
		return err
	}
	link, err := netlink.LinkByName("host0")
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr("192.0.2.2/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(192, 0, 2, 1)})
}
