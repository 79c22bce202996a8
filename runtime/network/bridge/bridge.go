// Package bridge is the network for pods on a machine that has none of its own: a bridge
// with a free subnet, the rules that let its pods out, and its CNI configuration.
package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"slices"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/network/cni"
	"github.com/runonce/runonce/runtime/network/hostnet"
)

const (
	// mainState is the state directory of a machine's ordinary runonce, whose bridge has
	// the plain name.
	mainState  = "/run/runonce/network"
	mainBridge = "runonce0"
	// The networks to choose from are 10.62.0.0/20 to 10.125.0.0/20, every second byte.
	firstNet, netCount, netBits = 62, 64, 20
)

// Bridge is a network that is ready for pods.
type Bridge struct {
	Name    string       // of the interface and of the CNI network
	Subnets []*net.IPNet // one of IPv4, one of IPv6, or both
	MTU     int          // the pods' MTU, that of the host's way out
	Leases  string       // directory of the addresses that are taken
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

// Name returns the name of the bridge that belongs to the state directory. Each
// directory has a bridge of its own, since each has its own book of addresses.
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

// CheckPorts returns a permanent error when a host port is one of an address of which family
// the pods have none: nothing could lead from there to them.
func (b Bridge) CheckPorts(ports []cni.PortMapping) error {
	for _, p := range ports {
		if ip := net.ParseIP(p.HostIP); ip != nil && b.subnet(ip.To4() == nil) == nil {
			return failure.Permanentf("hostPort %d of hostIP %s: the pods of bridge %q have no address of its family, only of %v",
				p.HostPort, p.HostIP, b.Name, b.Subnets)
		}
	}
	return nil
}

// Options say which bridge is meant.
type Options struct {
	StateDir string // it belongs to
	Leases   string // directory of the addresses that are taken
	// Subnets are those that it is to have. Without, a new one gets a free one of IPv4.
	Subnets []*net.IPNet
}

// Open makes the bridge with its rules, or takes up that of an earlier process. An error
// that no retry mends is permanent.
func Open(ctx context.Context, fw Firewall, o Options) (Bridge, error) {
	b := Bridge{Name: Name(o.StateDir), Leases: o.Leases}
	lock, err := hostnet.TakeLock(ctx)
	if err != nil {
		return b, err
	}
	defer lock.Release()
	if b.MTU, err = hostnet.MTU(); err != nil {
		return b, err
	}
	if b.Subnets, err = openLink(b.Name, o.Subnets, b.MTU); err != nil {
		return b, err
	}
	return b, fw.open(ctx, b, lock)
}

// openLink returns the subnets of the bridge, which it makes if need be.
func openLink(name string, wanted []*net.IPNet, mtu int) ([]*net.IPNet, error) {
	subnets, err := findLink(name)
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
	used, err := hostnet.Networks()
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

// complete reports whether the bridge has its addresses. One that was not finished has
// some of them, and lacks the first.
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
				return failure.Permanentf("the network %s cannot be the pods': the machine routes to %s", s, u)
			}
		}
	}
	return nil
}

// Remove removes the state directory's bridge and its rules by the firewalls in the
// directories of path, and the port mapping plugin's empty chains if they would not be there
// without us. Under the lock the caller has made sure that no pod is attached. An absent
// bridge is no error.
func Remove(ctx context.Context, stateDir, path string, lock hostnet.Lock, log *slog.Logger) error {
	b := Bridge{Name: Name(stateDir)}
	if _, exists, err := linkByName(b.Name); err != nil || !exists {
		return err // the bridge is the first to come and the last to go
	}
	var err error
	if b.Subnets, err = findLink(b.Name); err != nil {
		return err
	}
	all, err := Firewalls(path)
	if err != nil {
		return err
	}
	for _, fw := range all {
		if err := fw.remove(ctx, b, lock, log); err != nil {
			return err
		}
	}
	return removeLink(b.Name)
}

// Conf returns the network's CNI configuration with the given CNI capabilities.
// Masquerading is ours, one rule for the whole subnet: the bridge plugin's own costs a
// chain, and 40 ms to remove it, per pod.
func (b Bridge) Conf(capabilities []string) ([]byte, error) {
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
	for _, p := range []struct{ plugin, capability string }{{"portmap", "portMappings"}, {"bandwidth", "bandwidth"}} {
		if slices.Contains(capabilities, p.capability) {
			plugins = append(plugins, object{"type": p.plugin, "capabilities": object{p.capability: true}})
		}
	}
	data, err := json.Marshal(object{"cniVersion": "1.0.0", "name": b.Name, "plugins": plugins})
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of network %q: %w", b.Name, err)
	}
	return data, nil
}

// chooseSubnet returns the first free network, counted from a place that depends on the
// bridge's name, so that instances beside each other seldom meet.
func chooseSubnet(bridge string, taken []*net.IPNet) (*net.IPNet, error) {
	start := uint32(0)
	if bridge != mainBridge {
		start = hashOf(bridge)
	}
	for i := range uint32(netCount) {
		second := byte(firstNet + (start+i)%netCount)
		subnet := &net.IPNet{IP: net.IPv4(10, second, 0, 0).To4(), Mask: net.CIDRMask(netBits, 32)}
		if checkFree([]*net.IPNet{subnet}, taken) == nil {
			return subnet, nil
		}
	}
	return nil, failure.Permanentf("no network is free for the pods: the machine routes to all of 10.%d.0.0/%d to 10.%d.0.0/%d; "+
		"configure one in a CNI conflist", firstNet, netBits, firstNet+netCount-1, netBits)
}
