package cmd

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/backend"
)

const defaultCNIConfDir = "/etc/cni/net.d"

// pluginFlags are for all commands that use CNI plugins, also only to disconnect pods.
func pluginFlags() []cli.Flag {
	return []cli.Flag{newListFlag(categoryNetwork, "cni-bin-dir", "`DIR` of CNI plugins", "/opt/cni/bin and others")}
}

// connectFlags are for commands that decide on the networks of pods.
func connectFlags() []cli.Flag {
	return append(pluginFlags(),
		&cli.StringFlag{Name: "cni-conf-dir", Category: categoryNetwork, Value: defaultCNIConfDir, Usage: "CNI configuration `DIR`, replaces the bridge"},
		newListFlag(categoryNetwork, "pod-cidr", "IPv4 or IPv6 `CIDR` of the default bridge", "free IPv4"),
	)
}

// networkFlags are for the networks of pods.
func networkFlags() []cli.Flag {
	return append(connectFlags(),
		newListFlag(categoryNetwork, "cluster-dns", "`IP` address of a DNS server for dnsPolicy ClusterFirst", ""),
		&cli.StringFlag{Name: "cluster-domain", Category: categoryNetwork, Value: "cluster.local", Usage: "cluster `DOMAIN` in the DNS names of pods"},
	)
}

// networkOptions reads the flags of networkFlags.
func networkOptions(c *cli.Context, o *backend.Options) error {
	o.Network.CNIConfDir, o.Network.CNIBinDirs = c.String("cni-conf-dir"), listOf(c, "cni-bin-dir")
	o.Network.ClusterDomain = strings.Trim(c.String("cluster-domain"), ".")
	for _, s := range listOf(c, "cluster-dns") {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return usagef("--cluster-dns %q: must be an IP address", s)
		}
		o.ClusterDNS = append(o.ClusterDNS, ip.String())
	}
	var err error
	if o.Network.PodCIDRs, err = podCIDRs(listOf(c, "pod-cidr")); err != nil {
		return usagef("--pod-cidr %w", err)
	}
	return nil
}

// podCIDRs parses the networks. The result has IPv4 first.
func podCIDRs(values []string) ([]*net.IPNet, error) {
	var families [2]*net.IPNet
	for _, s := range values {
		ip, n, err := net.ParseCIDR(s)
		if err != nil || !ip.Equal(n.IP) {
			return nil, fmt.Errorf("%q: must be a network like 10.88.0.0/16 or fd00:88::/64", s)
		}
		family := 0
		if n.IP.To4() == nil {
			family = 1
		}
		// For the network itself, the bridge, and two pods.
		if ones, bits := n.Mask.Size(); bits-ones < 2 {
			return nil, fmt.Errorf("%q: is too small for pods", s)
		}
		if families[family] != nil {
			return nil, fmt.Errorf("%q: there can be only one IPv4 and one IPv6 network", s)
		}
		families[family] = n
	}
	var all []*net.IPNet
	for _, n := range families {
		if n != nil {
			all = append(all, n)
		}
	}
	return all, nil
}
