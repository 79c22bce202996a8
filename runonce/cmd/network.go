package cmd

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/backend"
)

const defaultCNIConfDir = "/etc/cni/net.d"

// pluginFlags are for all commands that use CNI plugins, also only to disconnect pods.
type pluginFlags struct{ cniBinDirs list }

func (f *pluginFlags) flags() []cli.Flag {
	return []cli.Flag{listFlag(&f.cniBinDirs, categoryNetwork, "`DIR` of CNI plugins", "cni-bin-dir", "/opt/cni/bin and others")}
}

// connectFlags are for commands that decide on the networks of pods.
type connectFlags struct {
	pluginFlags
	cniConfDir string
	podCIDRs   list
	networks   []*net.IPNet // in podCIDRs
}

func (f *connectFlags) flags() []cli.Flag {
	return append(f.pluginFlags.flags(),
		textFlag(&f.cniConfDir, categoryNetwork, "CNI configuration `DIR`, replaces the bridge", "cni-conf-dir", defaultCNIConfDir),
		listFlag(&f.podCIDRs, categoryNetwork, "IPv4 or IPv6 `CIDR` of the default bridge", "pod-cidr", "free IPv4"),
	)
}

func (f *connectFlags) check() (err error) {
	if f.cniConfDir != defaultCNIConfDir { // which need not exist
		if err := existingDir("cni-conf-dir", f.cniConfDir); err != nil {
			return err
		}
	}
	if f.networks, err = parseCIDRs(f.podCIDRs.values, "pods"); err != nil {
		return usagef("--pod-cidr %w", err)
	}
	return nil
}

// setTo says how to connect pods.
func (f *connectFlags) setTo(o *backend.Options) {
	o.Network.CNIConfDir, o.Network.CNIBinDirs, o.Network.PodCIDRs = f.cniConfDir, f.cniBinDirs.values, f.networks
}

// networkFlags are for the networks of pods.
type networkFlags struct {
	connectFlags
	clusterDNS    list
	clusterDomain string
	serviceCIDRs  list
	serviceRanges []netip.Prefix // in serviceCIDRs
}

func (f *networkFlags) flags() []cli.Flag {
	return append(f.connectFlags.flags(),
		listFlag(&f.clusterDNS, categoryNetwork, "`IP` address of a DNS server for dnsPolicy ClusterFirst", "cluster-dns", ""),
		textFlag(&f.clusterDomain, categoryNetwork, "cluster `DOMAIN` in names of pods and Services", "cluster-domain", "cluster.local"),
		listFlag(&f.serviceCIDRs, categoryNetwork, "`CIDR` of the cluster IPs of Services", "service-cidr", "a free one"),
	)
}

func (f *networkFlags) check() error {
	for i, s := range f.clusterDNS.values {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return usagef("--cluster-dns %q: must be an IP address", s)
		}
		f.clusterDNS.values[i] = ip.String()
	}
	f.clusterDomain = strings.Trim(f.clusterDomain, ".")
	if err := f.connectFlags.check(); err != nil {
		return err
	}
	ranges, err := parseCIDRs(f.serviceCIDRs.values, "Services")
	if err != nil {
		return usagef("--service-cidr %w", err)
	}
	for _, n := range ranges {
		ones, _ := n.Mask.Size()
		ip, _ := netip.AddrFromSlice(n.IP)
		f.serviceRanges = append(f.serviceRanges, netip.PrefixFrom(ip, ones))
		if i := slices.IndexFunc(f.networks, func(o *net.IPNet) bool { return o.Contains(n.IP) || n.Contains(o.IP) }); i >= 0 {
			return usagef("--service-cidr %s overlaps --pod-cidr %s", n, f.networks[i])
		}
	}
	return nil
}

// setTo says how to connect pods, and what they know of a cluster.
func (f *networkFlags) setTo(o *backend.Options) {
	f.connectFlags.setTo(o)
	o.ClusterDNS, o.Network.ClusterDomain, o.ServiceCIDRs = f.clusterDNS.values, f.clusterDomain, f.serviceRanges
}

// parseCIDRs parses the networks for something. The result has IPv4 first.
func parseCIDRs(values []string, purpose string) ([]*net.IPNet, error) {
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
			return nil, fmt.Errorf("%q: is too small for %s", s, purpose)
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
