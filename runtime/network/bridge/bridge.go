// Package bridge is the network for pods on a machine without a CNI configuration: a bridge
// with a free subnet, its firewall rules, and a CNI configuration for it.
package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/network/cni"
)

const (
	// mainState is the default state directory, whose bridge has the plain name.
	mainState  = "/run/runonce/network"
	mainBridge = "runonce0"
	// The networks to choose from are 10.62.0.0/20 to 10.125.0.0/20, every second byte.
	firstNet, netCount, netBits = 62, 64, 20
)

// BandwidthPlugin is the CNI plugin for pods with a bandwidth limit.
const BandwidthPlugin = "bandwidth"

// Bridge is a network that is ready for pods.
type Bridge struct {
	Name    string       // of the interface and of the CNI network
	Subnets []*net.IPNet // one of IPv4, one of IPv6, or both
	MTU     int          // of the pods' interfaces, that of the host's default route
	Leases  string       // directory of the leased addresses
	// OwnPorts says that host ports are mapped by Ports and not by a CNI plugin.
	OwnPorts bool
}

// subnet returns the bridge's subnet of IPv6 or of IPv4, nil when it has none.
func (b Bridge) subnet(v6 bool) *net.IPNet {
	for _, s := range b.Subnets {
		if (s.IP.To4() == nil) == v6 {
			return s
		}
	}
	return nil
}

// Name returns the name of the bridge that belongs to the state directory. Each directory has
// a bridge of its own, since each has its own leases of addresses.
func Name(stateDir string) string {
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

// CheckPorts returns a permanent error when the pods have no address of the family of a host
// port's address: nothing could be forwarded from there to them.
func (b Bridge) CheckPorts(ports []cni.PortMapping) error {
	for _, p := range ports {
		if ip := net.ParseIP(p.HostIP); ip != nil && b.subnet(ip.To4() == nil) == nil {
			return failure.Permanentf("hostPort %d of hostIP %s: the pods of bridge %q have no address of its family, only of %v",
				p.HostPort, p.HostIP, b.Name, b.Subnets)
		}
	}
	return nil
}

// Options say what bridge to open.
type Options struct {
	StateDir string // that it belongs to
	Leases   string // directory of the leased addresses
	// Subnets are those of the bridge. By default a new one gets a free one of IPv4.
	Subnets []*net.IPNet
	// Path holds the directories of iptables and nft, separated by colons.
	Path       string
	PluginDirs []string // of the CNI plugins
}

// Open creates the bridge with its rules, or continues to use that of an earlier process. It
// first checks that the programs it needs are installed. An error that no retry can fix is
// permanent.
func Open(ctx context.Context, o Options) (*Bridge, error) {
	found, err := firewalls(o.Path)
	if err != nil {
		return nil, err
	}
	fw := found[0]
	if err := cni.CheckPlugins(fw.plugins, o.PluginDirs); err != nil {
		return nil, err
	}
	lock, err := LockHost(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	b := &Bridge{Name: Name(o.StateDir), Leases: o.Leases, OwnPorts: fw.ownPorts}
	if b.MTU, err = hostMTU(); err != nil {
		return nil, err
	}
	if b.Subnets, err = openLink(b.Name, o.Subnets, b.MTU); err != nil {
		return nil, err
	}
	return b, fw.open(ctx, *b, lock)
}

// openLink returns the subnets of the bridge, which it creates if needed.
func openLink(name string, wanted []*net.IPNet, mtu int) ([]*net.IPNet, error) {
	_, subnets, err := findLink(name)
	if err != nil {
		return nil, err
	}
	if complete(subnets, wanted) {
		if len(wanted) > 0 && fmt.Sprint(subnets) != fmt.Sprint(wanted) {
			return nil, failure.Permanentf("bridge %q has the subnets %v, not %v: remove its pods first (runonce down --all)",
				name, subnets, wanted)
		}
		return subnets, nil
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
	} else if err := checkFree(wanted, slices.DeleteFunc(used, func(n *net.IPNet) bool { return isOneOf(n, subnets) })); err != nil {
		return nil, err
	}
	return wanted, makeLink(name, wanted, mtu)
}

// complete reports whether the bridge has its addresses. An unfinished one has some of them,
// but not the first.
func complete(subnets, wanted []*net.IPNet) bool {
	return len(subnets) > 0 && (len(wanted) == 0 || isOneOf(wanted[0], subnets) || !isOneOf(subnets[0], wanted))
}

func isOneOf(n *net.IPNet, all []*net.IPNet) bool {
	return slices.ContainsFunc(all, func(o *net.IPNet) bool { return o.String() == n.String() })
}

// checkFree returns a permanent error when the machine routes to one of the subnets.
func checkFree(subnets, used []*net.IPNet) error {
	for _, s := range subnets {
		for _, u := range used {
			if u.Contains(s.IP) || s.Contains(u.IP) {
				return failure.Permanentf("the network %s cannot be used for pods: the machine has a route to %s", s, u)
			}
		}
	}
	return nil
}

// Remove removes the state directory's bridge and its rules with the firewalls in the
// directories of path, and the portmap plugin's chains if they are empty and exist only for
// us. The caller holds the lock and has made sure that no pod is attached. It is not an error
// if there is no bridge.
func Remove(ctx context.Context, stateDir, path string, lock Lock, log *slog.Logger) error {
	name := Name(stateDir)
	link, subnets, err := findLink(name)
	if err != nil || link == nil {
		return err // the bridge is created first and removed last
	}
	all, err := firewalls(path)
	if err != nil {
		return err
	}
	for _, fw := range all {
		if err := fw.remove(ctx, Bridge{Name: name, Subnets: subnets}, lock, log); err != nil {
			return err
		}
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing bridge %q: %w", name, err)
	}
	return nil
}

// Conf returns the network's CNI configuration with the given CNI capabilities. Masquerading
// is one rule of ours for the whole subnet: the bridge plugin's costs a chain per pod, and
// 40 ms to remove it.
func (b Bridge) Conf(capabilities []string) (*libcni.NetworkConfigList, error) {
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
	for _, p := range []struct{ plugin, capability string }{{"portmap", "portMappings"}, {BandwidthPlugin, "bandwidth"}} {
		if slices.Contains(capabilities, p.capability) {
			plugins = append(plugins, object{"type": p.plugin, "capabilities": object{p.capability: true}})
		}
	}
	data, err := json.Marshal(object{"cniVersion": "1.0.0", "name": b.Name, "plugins": plugins})
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of network %q: %w", b.Name, err)
	}
	list, err := libcni.ConfListFromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of network %q: %w", b.Name, err)
	}
	return list, nil
}

// chooseSubnet returns the first free network, starting with one that depends on the bridge's
// name, so that several instances seldom choose the same.
func chooseSubnet(bridge string, used []*net.IPNet) (*net.IPNet, error) {
	start := uint32(0)
	if bridge != mainBridge {
		start = hashOf(bridge)
	}
	for i := range uint32(netCount) {
		second := byte(firstNet + (start+i)%netCount)
		subnet := &net.IPNet{IP: net.IPv4(10, second, 0, 0).To4(), Mask: net.CIDRMask(netBits, 32)}
		if checkFree([]*net.IPNet{subnet}, used) == nil {
			return subnet, nil
		}
	}
	return nil, failure.Permanentf("no network is free for the pods: the machine has routes to all of 10.%d.0.0/%d to 10.%d.0.0/%d; "+
		"configure one in a CNI conflist", firstNet, netBits, firstNet+netCount-1, netBits)
}
