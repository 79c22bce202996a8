package bridge

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/network/fault"
)

// linkByName returns the interface, or found false.
func linkByName(name string) (link netlink.Link, found bool, err error) {
	link, err = netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("looking for bridge %q: %w", name, err)
	}
	return link, true, nil
}

// findLink returns the subnet of the bridge, or ok false when it has none yet or does not
// exist.
func findLink(name string) (subnet *net.IPNet, ok bool, err error) {
	link, found, err := linkByName(name)
	if err != nil || !found {
		return nil, false, err
	}
	if link.Type() != "bridge" {
		return nil, false, fault.Permanentf("interface %q exists and is no bridge but a %s", name, link.Type())
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return nil, false, fmt.Errorf("listing the addresses of bridge %q: %w", name, err)
	}
	if len(addrs) == 0 {
		return nil, false, nil
	}
	return &net.IPNet{IP: addrs[0].IP.Mask(addrs[0].Mask), Mask: addrs[0].Mask}, true, nil
}

// makeLink makes the bridge with the first address of the subnet. A bridge of the name
// that a crash left without an address is completed.
func makeLink(name string, subnet *net.IPNet, mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("making bridge %q: %w", name, err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for bridge %q: %w", name, err)
	}
	// An address of its own: without, it takes its ports' lowest, and the pods lose their
	// gateway each time that changes.
	if err := netlink.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr); err != nil {
		return fmt.Errorf("fixing the hardware address of bridge %q: %w", name, err)
	}
	gateway := &net.IPNet{IP: firstAddress(subnet), Mask: subnet.Mask}
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: gateway}); err != nil {
		return fmt.Errorf("giving bridge %q the address %s: %w", name, gateway, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing up bridge %q: %w", name, err)
	}
	return nil
}

func removeLink(name string) error {
	link, found, err := linkByName(name)
	if err != nil || !found {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing bridge %q: %w", name, err)
	}
	return nil
}

func firstAddress(subnet *net.IPNet) net.IP {
	ip := append(net.IP(nil), subnet.IP.To4()...)
	ip[3]++
	return ip
}
