package cmd

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/urfave/cli/v2"
)

// pluginFlags say where the CNI plugins are, also for commands that only disconnect pods.
func pluginFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "cni-bin-dir", Category: categoryNetwork, Usage: "`DIR` of CNI plugins; may be repeated (default: /opt/cni/bin, /usr/lib/cni, /usr/libexec/cni)"},
	}
}

// networkFlags say how pods are connected and what they resolve.
func networkFlags() []cli.Flag {
	return append(pluginFlags(),
		&cli.StringFlag{Name: "cni-conf-dir", Category: categoryNetwork, Value: "/etc/cni/net.d", Usage: "`DIR` of CNI network configurations; without one there pods get a bridge of their own"},
		&cli.StringSliceFlag{Name: "pod-cidr", Category: categoryNetwork, Usage: "`NETWORK` of that bridge (default: a free one of IPv4); one of IPv4 and one of IPv6 make pods dual-stack"},
		&cli.StringSliceFlag{Name: "cluster-dns", Category: categoryNetwork, Usage: "`ADDRESS` of a DNS server for pods whose dnsPolicy is ClusterFirst; may be repeated"},
		&cli.StringFlag{Name: "cluster-domain", Category: categoryNetwork, Value: "cluster.local", Usage: "`DOMAIN` of pods with a subdomain, and what they search with --cluster-dns"},
	)
}

// networkOptions reads the flags of networkFlags.
func (o *EngineOptions) networkOptions(c *cli.Context) error {
	o.Network.CNIConfDir, o.Network.CNIBinDirs = c.String("cni-conf-dir"), c.StringSlice("cni-bin-dir")
	o.Network.ClusterDomain = strings.Trim(c.String("cluster-domain"), ".")
	for _, s := range c.StringSlice("cluster-dns") {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return usagef("--cluster-dns %q: must be an IP address", s)
		}
		o.ClusterDNS = append(o.ClusterDNS, ip.String())
	}
	var err error
	if o.Network.PodCIDRs, err = podCIDRs(c.StringSlice("pod-cidr")); err != nil {
		return usagef("--pod-cidr %w", err)
	}
	return nil
}

// podCIDRs returns the networks, that of IPv4 first.
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
		// The network itself, the bridge, and two pods.
		if ones, bits := n.Mask.Size(); bits-ones < 2 {
			return nil, fmt.Errorf("%q: has no room for pods", s)
		}
		if families[family] != nil {
			return nil, fmt.Errorf("%q: at most one network of IPv4 and one of IPv6 can be given", s)
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
