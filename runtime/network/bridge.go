package network

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

const (
	// mainState is the default state directory, whose bridge has the plain name.
	mainState  = "/run/runonce/network"
	mainBridge = "runonce0"
	// The networks to choose from are 10.62.0.0/20 to 10.125.0.0/20, every second byte.
	firstNet, netCount, netBits = 62, 64, 20
)

// podBridge is the network for pods on a machine without a CNI configuration: a bridge with a free
// subnet, its firewall rules, and a CNI configuration for it.
type podBridge struct {
	Name    string       // of the interface and of the CNI network
	Subnets []*net.IPNet // one of IPv4, one of IPv6, or both
	MTU     int          // of the pods' interfaces, that of the host's default route
	Leases  string       // directory of the leased addresses
	// OwnPorts says that host ports are mapped by Ports and not by a CNI plugin.
	OwnPorts bool
}

// subnet returns the bridge's subnet of IPv6 or of IPv4, nil when it has none.
func (b podBridge) subnet(v6 bool) *net.IPNet {
	for _, s := range b.Subnets {
		if (s.IP.To4() == nil) == v6 {
			return s
		}
	}
	return nil
}

// has reports whether packets of the bridge pass the chains of a family of nft.
func (b podBridge) has(family string) bool {
	switch family {
	case "ip":
		return b.subnet(false) != nil
	case "ip6":
		return b.subnet(true) != nil
	default:
		return family == "inet"
	}
}

// BridgeName returns the name of the bridge that belongs to the state directory. Each directory has
// a bridge of its own, since each has its own leases of addresses.
func BridgeName(stateDir string) string {
	if stateDir == mainState {
		return mainBridge
	}
	return fmt.Sprintf("runonce-%06x", hashOf(stateDir)&0xffffff)
}

func hashOf(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum32()
}

// CheckPorts returns a permanent error when nothing could be forwarded from a host port's address:
// the pods have none of its family, or it is the loopback of IPv6, for which Linux has no
// route_localnet.
func (b podBridge) CheckPorts(ports []portMapping) error {
	for _, p := range ports {
		if ip := net.ParseIP(p.HostIP); ip != nil && b.subnet(ip.To4() == nil) == nil {
			return failure.Permanentf("hostPort %d of hostIP %s: the pods of bridge %q have no address of its family, only of %v",
				p.HostPort, p.HostIP, b.Name, b.Subnets)
		} else if ip != nil && ip.To4() == nil && ip.IsLoopback() {
			return failure.Permanentf("hostPort %d of hostIP %s: Linux forwards nothing from this address to pods", p.HostPort, p.HostIP)
		}
	}
	return nil
}

// keepBridge makes sure that the bridge and its rules exist. The caller holds the lock mu.
func (m *Manager) keepBridge(ctx context.Context) error {
	if m.bridge != nil && time.Since(m.opened) < recheck {
		return nil
	}
	b, err := m.openBridge(ctx)
	if err == nil {
		m.bridge, m.opened = b, time.Now()
	}
	return err
}

// openBridge creates the bridge with its rules, or continues to use that of an earlier process. It
// first checks that the programs it needs are installed. An error that no retry can fix is
// permanent.
func (m *Manager) openBridge(ctx context.Context) (*podBridge, error) {
	found, err := firewalls(m.o.Path)
	if err != nil {
		return nil, err
	}
	fw := found[0]
	if err := checkPlugins(fw.plugins, m.o.CNIBinDirs); err != nil {
		return nil, err
	}
	lock, err := lockHost(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	b := &podBridge{Name: BridgeName(m.o.StateDir), Leases: m.files.leases(), OwnPorts: fw.ownPorts}
	if b.MTU, err = hostMTU(); err != nil {
		return nil, err
	}
	if b.Subnets, err = openLink(b.Name, m.o.PodCIDRs, b.MTU); err != nil {
		return nil, err
	}
	if err := enableForwarding(*b); err != nil {
		return nil, err
	}
	if err := fw.open(ctx, *b, lock); err != nil {
		return nil, err
	}
	if err := m.acceptForward(ctx, *b, lock, fw); err != nil {
		return nil, err
	}
	return b, m.restorePods(ctx, *b, lock, found)
}

// enableForwarding lets the machine forward packets, as the bridge plugin does for each pod: somebody
// may have disabled that since.
func enableForwarding(b podBridge) error {
	for _, s := range b.Subnets {
		file := "/proc/sys/net/ipv4/ip_forward"
		if s.IP.To4() == nil {
			file = "/proc/sys/net/ipv6/conf/all/forwarding"
		}
		now, err := os.ReadFile(file)
		if err == nil && string(bytes.TrimSpace(now)) != "1" {
			err = os.WriteFile(file, []byte("1"), 0)
		}
		if err != nil {
			return fmt.Errorf("enabling the forwarding of packets: %w", err)
		}
	}
	return nil
}

// acceptForward keeps rules of nft, and those of the other variant of iptables, from dropping the
// bridge's packets.
func (m *Manager) acceptForward(ctx context.Context, b podBridge, lock hostLock, fw firewall) error {
	for _, legacy := range legacyTables(m.o.Path) {
		if err := legacy.open(ctx, b, lock); err != nil {
			m.o.Log.Warn("could not keep the rules of iptables-legacy from dropping the packets of pods", "error", err)
		}
	}
	dir := dirOf("nft", m.o.Path)
	if dir == "" {
		return nil
	}
	closed, err := nft{dir}.acceptForward(ctx, b, lock)
	if m.bridge != nil {
		closed = nil // it was said before
	}
	for _, table := range closed {
		m.o.Log.Warn("could not change this table of nft rules permanently, since another program owns it: if it drops forwarded packets, the pods have no network, "+
			"at the latest when it is loaded again (firewalld: firewall-cmd --permanent --zone=trusted --add-interface="+b.Name+" && firewall-cmd --reload)", "table", table)
	}
	if err != nil && !fw.ownPorts { // the kernel may have no nftables
		m.o.Log.Warn("could not check for nft rules that drop the packets of pods", "error", err)
		return nil
	}
	return err
}

// openLink returns the subnets of the bridge, which it creates if needed.
func openLink(name string, wanted []*net.IPNet, mtu int) ([]*net.IPNet, error) {
	link, subnets, err := findLink(name)
	if err != nil {
		return nil, err
	}
	if bridgeComplete(subnets, wanted) {
		if len(wanted) > 0 && fmt.Sprint(subnets) != fmt.Sprint(wanted) {
			return nil, failure.Permanentf("bridge %q has the subnets %v, not %v: remove its pods first (runonce down --all)",
				name, subnets, wanted)
		}
		return subnets, bringUpLink(link)
	}
	used, err := routedNetworks()
	if err != nil {
		return nil, err
	}
	if len(wanted) == 0 {
		subnet, err := chooseSubnet(name, used)
		if err != nil {
			return nil, err
		}
		wanted = []*net.IPNet{subnet}
	} else if err := checkFree(wanted, slices.DeleteFunc(used, func(n routedNetwork) bool { return slices.ContainsFunc(subnets, n.within) })); err != nil {
		return nil, err
	}
	return wanted, makeLink(name, wanted, mtu)
}

// bridgeComplete reports whether the bridge has its addresses, or others. One that was not finished,
// or that was down and so has lost those of IPv6, has only some of them.
func bridgeComplete(subnets, wanted []*net.IPNet) bool {
	missing := func(from []*net.IPNet) func(*net.IPNet) bool {
		return func(n *net.IPNet) bool { return !isOneOf(n, from) }
	}
	return len(subnets) > 0 && (!slices.ContainsFunc(wanted, missing(subnets)) || slices.ContainsFunc(subnets, missing(wanted)))
}

func isOneOf(n *net.IPNet, all []*net.IPNet) bool {
	return slices.ContainsFunc(all, func(o *net.IPNet) bool { return o.String() == n.String() })
}

// checkFree returns a permanent error when the machine routes to a part of one of the subnets, or
// is connected to a network with it. A larger network behind a gateway or a VPN is no reason to
// refuse what somebody has chosen: only they know which of its addresses are in use.
func checkFree(subnets []*net.IPNet, used []routedNetwork) error {
	for _, s := range subnets {
		for _, u := range used {
			if u.within(s) || u.Connected && u.Contains(s.IP) {
				return failure.Permanentf("the network %s cannot be used for pods: the machine has a route to %s", s, u)
			}
		}
	}
	return nil
}

// removeBridge removes the bridge and its rules, and the portmap plugin's chains if they are empty
// and exist only for us. The caller holds the lock and has made sure that no pod is attached. It is
// not an error if there is no bridge.
func (m *Manager) removeBridge(ctx context.Context, lock hostLock) error {
	name := BridgeName(m.o.StateDir)
	link, subnets, err := findLink(name)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(m.files.leases()); link == nil && errors.Is(err, fs.ErrNotExist) {
		return nil // no pod has ever used a bridge
	}
	all, err := firewalls(m.o.Path)
	if err != nil {
		return err
	}
	for i, fw := range append(all, legacyTables(m.o.Path)...) {
		err := fw.remove(ctx, podBridge{Name: name, Subnets: subnets}, lock, m.o.Log)
		if err != nil && i == 0 {
			return err
		}
		if err != nil { // the kernel may have no nftables
			m.o.Log.Warn("could not look for the rules of the bridge", "error", err)
		}
	}
	if link == nil {
		return nil // somebody has deleted it, and the rules have outlived it
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing bridge %q: %w", name, err)
	}
	return nil
}

// Conf returns the network's CNI configuration with the given CNI capabilities. Masquerading
// is one rule of ours for the whole subnet: the bridge plugin's costs a chain per pod, and
// 40 ms to remove it.
func (b podBridge) Conf(capabilities []string) (*libcni.NetworkConfigList, error) {
	type object map[string]any
	ranges, routes := make([][]object, 0, 2), make([]object, 0, 2)
	for _, subnet := range b.Subnets {
		all := "0.0.0.0/0"
		if subnet.IP.To4() == nil {
			all = "::/0"
		}
		ranges, routes = append(ranges, []object{{"subnet": subnet.String()}}), append(routes, object{"dst": all})
	}
	plugins := []object{{
		"type": "bridge", "bridge": b.Name, "isGateway": true, "hairpinMode": true, "ipMasq": false, "mtu": b.MTU,
		"ipam": object{
			"type":    "host-local",
			"dataDir": b.Leases,
			"ranges":  ranges,
			"routes":  routes,
		},
	}}
	for _, p := range []struct{ plugin, capability string }{{"portmap", capabilityPorts}, {bandwidthPlugin, capabilityBandwidth}} {
		if slices.Contains(capabilities, p.capability) {
			plugins = append(plugins, object{"type": p.plugin, "capabilities": object{p.capability: true}})
		}
	}
	data, _ := json.Marshal(object{"cniVersion": "1.0.0", "name": b.Name, "plugins": plugins}) // texts and numbers
	list, err := libcni.ConfListFromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of network %q: %w", b.Name, err)
	}
	return list, nil
}

// chooseSubnet returns the first free network for pods.
func chooseSubnet(bridge string, used []routedNetwork) (*net.IPNet, error) {
	if subnet := firstFree(bridge, 0, used); subnet != nil {
		return subnet, nil
	}
	return nil, failure.Permanentf("no network is free for the pods: the machine has routes to all of 10.%d.0.0/%d to 10.%d.0.0/%d; "+
		"choose one with --pod-cidr", firstNet, netBits, firstNet+netCount-1, netBits)
}

// firstFree returns the first free network with the third byte, starting with one that depends on the bridge's
// name, so that several instances seldom choose the same; nil if there is none.
func firstFree(bridge string, third byte, used []routedNetwork) *net.IPNet {
	start := uint32(0)
	if bridge != mainBridge {
		start = hashOf(bridge)
	}
	for i := range uint32(netCount) {
		second := byte(firstNet + (start+i)%netCount)
		subnet := &net.IPNet{IP: net.IPv4(10, second, third, 0).To4(), Mask: net.CIDRMask(netBits, 32)}
		overlaps := func(u routedNetwork) bool { return u.within(subnet) || u.Contains(subnet.IP) }
		if !slices.ContainsFunc(used, overlaps) {
			return subnet
		}
	}
	return nil
}

// serviceThird is the third byte of the networks of Services: they are beside those of pods.
const serviceThird = 240

// FreeServiceRange returns a network for the cluster IPs of Services that the machine has no route to.
func FreeServiceRange(bridge string, family v1.IPFamily) (none netip.Prefix, err error) {
	used, err := routedNetworks()
	if err != nil {
		return none, err
	}
	if family == v1.IPv6Protocol {
		// A network of its own, as unlikely to be in use as any (RFC 4193).
		sum := sha256.Sum256([]byte("services of " + bridge))
		ip := [16]byte{0: 0xfd}
		copy(ip[1:8], sum[:])
		return netip.PrefixFrom(netip.AddrFrom16(ip), serviceBits6), nil
	}
	subnet := firstFree(bridge, serviceThird, used)
	if subnet == nil {
		return none, failure.Permanentf("no network is free for Services: choose one with --service-cidr")
	}
	ip, _ := netip.AddrFromSlice(subnet.IP)
	return netip.PrefixFrom(ip, netBits), nil
}

// serviceBits6 is the prefix length of a network of IPv6 for Services, the longest that kube-apiserver allows by default.
const serviceBits6 = 112

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
		addrs, err := Listed(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
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
	return bringUpLink(link)
}

func bringUpLink(link netlink.Link) error {
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing up bridge %q: %w", link.Attrs().Name, err)
	}
	return nil
}

func firstAddress(subnet *net.IPNet) net.IP {
	ip := slices.Clone(subnet.IP)
	ip[len(ip)-1]++
	return ip
}
