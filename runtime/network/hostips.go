package network

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/runonce/runonce/runtime/network/bridge"
)

// HostIPs returns the machine's own addresses as pods on the host network have them: for
// IPv4 and then IPv6, the first global address of the interface that holds the default
// route, or without one of any interface that is up. Without any it returns 127.0.0.1.
func HostIPs() ([]string, error) {
	var ips []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		ip, err := primaryIP(family)
		if err != nil {
			return nil, err
		}
		if ip != "" {
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		return []string{"127.0.0.1"}, nil
	}
	return ips, nil
}

func primaryIP(family int) (string, error) {
	addrs, err := netlink.AddrList(nil, family)
	if err != nil {
		return "", fmt.Errorf("listing the machine's addresses: %w", err)
	}
	index, err := bridge.DefaultLink(family)
	if err != nil {
		return "", err
	}
	for _, a := range addrs {
		if !a.IP.IsGlobalUnicast() || a.Scope != int(netlink.SCOPE_UNIVERSE) {
			continue
		}
		if a.LinkIndex == index || index == 0 && isUp(a.LinkIndex) {
			return a.IP.String(), nil
		}
	}
	return "", nil
}

func isUp(index int) bool {
	link, err := netlink.LinkByIndex(index)
	return err == nil && link.Attrs().Flags&net.FlagUp != 0
}
