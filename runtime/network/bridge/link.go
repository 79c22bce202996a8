package bridge

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/failure"
)

// findLink returns the bridge, nil when it does not exist, and its subnets, IPv4's first.
func findLink(name string) (netlink.Link, []*net.IPNet, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("looking for bridge %q: %w", name, err)
	}
	if link.Type() != "bridge" {
		return nil, nil, failure.Permanentf("interface %q exists and is not a bridge but a %s", name, link.Type())
	}
	var subnets []*net.IPNet
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addrs, err := netlink.AddrList(link, family)
		if err != nil {
			return nil, nil, fmt.Errorf("listing the addresses of bridge %q: %w", name, err)
		}
		for _, a := range addrs {
			if !a.IP.IsLinkLocalUnicast() {
				subnets = append(subnets, &net.IPNet{IP: a.IP.Mask(a.Mask), Mask: a.Mask})
			}
		}
	}
	return link, subnets, nil
}

// makeLink creates the bridge with the first address of each subnet. A bridge that a crash
// left without addresses is completed.
func makeLink(name string, subnets []*net.IPNet, mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("creating bridge %q: %w", name, err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for bridge %q: %w", name, err)
	}
	// Otherwise its address is the lowest of its ports', and the pods lose their gateway each
	// time that changes.
	if err := netlink.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr); err != nil {
		return fmt.Errorf("fixing the hardware address of bridge %q: %w", name, err)
	}
	// The first subnet comes last: a bridge with its address is complete.
	for _, subnet := range slices.Backward(subnets) {
		gateway := &netlink.Addr{IPNet: &net.IPNet{IP: firstAddress(subnet), Mask: subnet.Mask}}
		if subnet.IP.To4() == nil {
			gateway.Flags = unix.IFA_F_NODAD // nobody else can have it, and pods need it at once
		}
		err := netlink.AddrReplace(link, gateway)
		if gateway.Flags != 0 && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP)) {
			return failure.Permanentf("adding address %s to bridge %q: IPv6 is disabled on this machine: %w", gateway.IPNet, name, err)
		}
		if err != nil {
			return fmt.Errorf("adding address %s to bridge %q: %w", gateway.IPNet, name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing up bridge %q: %w", name, err)
	}
	return nil
}

func firstAddress(subnet *net.IPNet) net.IP {
	ip := slices.Clone(subnet.IP)
	ip[len(ip)-1]++
	return ip
}
