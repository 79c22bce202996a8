// Package network reads the flags that say how pods are connected and what they resolve.
package network

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/exitcode"
)

const category = "Network"

// PluginFlags say where the CNI plugins are, also for commands that only disconnect pods.
func PluginFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "cni-bin-dir", Category: category, Usage: "`DIR` of CNI plugins; may be repeated (default: /opt/cni/bin, /usr/lib/cni, /usr/libexec/cni)"},
	}
}

// Flags say how pods are connected and what they resolve.
func Flags() []cli.Flag {
	return append(PluginFlags(),
		&cli.StringFlag{Name: "cni-conf-dir", Category: category, Value: "/etc/cni/net.d", Usage: "`DIR` of CNI network configurations; without one there pods get a bridge of their own"},
		&cli.StringSliceFlag{Name: "pod-cidr", Category: category, Usage: "`NETWORK` of that bridge (default: a free one of IPv4); one of IPv4 and one of IPv6 make pods dual-stack"},
		&cli.StringSliceFlag{Name: "cluster-dns", Category: category, Usage: "`ADDRESS` of a DNS server for pods whose dnsPolicy is ClusterFirst; may be repeated"},
		&cli.StringFlag{Name: "cluster-domain", Category: category, Value: "cluster.local", Usage: "`DOMAIN` of pods with a subdomain, and what they search with --cluster-dns"},
	)
}

// Options reads the flags. Its errors are those of usage.
func Options(c *cli.Context) (backend.Network, error) {
	o := backend.Network{
		ConfDir: c.String("cni-conf-dir"), BinDirs: c.StringSlice("cni-bin-dir"), ClusterDomain: strings.Trim(c.String("cluster-domain"), "."),
	}
	for _, s := range c.StringSlice("cluster-dns") {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return o, exitcode.Usagef("--cluster-dns %q: must be an IP address", s)
		}
		o.ClusterDNS = append(o.ClusterDNS, ip.String())
	}
	var err error
	if o.PodCIDRs, err = podCIDRs(c.StringSlice("pod-cidr")); err != nil {
		return o, exitcode.Usagef("--pod-cidr %w", err)
	}
	return o, nil
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
