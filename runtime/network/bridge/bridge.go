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
	"os"
	"slices"

	"github.com/runonce/runonce/runtime/network/fault"
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

// Plugins are the CNI plugins that the network needs for pods without a bandwidth limit.
func Plugins() []string { return []string{"bridge", "host-local", "portmap"} }

// Bridge is a network that is ready for pods.
type Bridge struct {
	Name   string // of the interface and of the CNI network
	Subnet *net.IPNet
	MTU    int    // the pods' MTU, that of the host's way out
	Leases string // directory of the addresses that are taken
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

// Open makes the bridge of the state directory with its rules, or takes up that of an
// earlier process. An error that no retry mends is permanent.
func Open(ctx context.Context, stateDir, leases string) (Bridge, error) {
	b := Bridge{Name: Name(stateDir), Leases: leases}
	tables, err := findIPTables(hostnet.SystemPath(os.Getenv("PATH")))
	if err != nil {
		return b, err
	}
	if tables.lock, err = hostnet.TakeLock(ctx); err != nil {
		return b, err
	}
	defer tables.lock.Release()
	if b.MTU, err = hostnet.MTU(); err != nil {
		return b, err
	}
	if b.Subnet, err = openLink(b.Name, b.MTU); err != nil {
		return b, err
	}
	return b, openRules(ctx, tables, b)
}

// openLink returns the subnet of the bridge, which it makes if need be.
func openLink(name string, mtu int) (*net.IPNet, error) {
	subnet, found, err := findLink(name)
	if err != nil || found {
		return subnet, err
	}
	used, err := hostnet.Networks()
	if err != nil {
		return nil, err
	}
	if subnet, err = chooseSubnet(name, used); err != nil {
		return nil, err
	}
	return subnet, makeLink(name, subnet, mtu)
}

// openRules adds the bridge's rules, in place of those of another subnet that a bridge of
// this name had. It marks the port mapping plugin's chains if they will be of our making.
func openRules(ctx context.Context, tables iptables, b Bridge) error {
	rules, err := tables.save(ctx)
	if err != nil {
		return err
	}
	change := rules.portChainSetup()
	if !rules.hasBridge(b.Name, b.Subnet) {
		change = change.with(rules.own(b.Name).deletion()).with(bridgeRules(b.Name, b.Subnet))
	}
	if err := tables.apply(ctx, change); err != nil {
		return fmt.Errorf("adding the rules of bridge %q: %w", b.Name, err)
	}
	return nil
}

// Remove removes the state directory's bridge and its rules, and the port mapping
// plugin's empty chains if they would not be there without us. The caller has made sure
// that no pod is attached, under the lock. An absent bridge is no error.
func Remove(ctx context.Context, stateDir string, lock hostnet.Lock, log *slog.Logger) error {
	name := Name(stateDir)
	if _, exists, err := linkByName(name); err != nil || !exists {
		return err // the bridge is the first to come and the last to go
	}
	tables, err := findIPTables(hostnet.SystemPath(os.Getenv("PATH")))
	if err != nil {
		return err
	}
	tables.lock = lock
	rules, err := tables.save(ctx)
	if err != nil {
		return err
	}
	if err := tables.apply(ctx, rules.own(name).deletion()); err != nil {
		return fmt.Errorf("removing the rules of bridge %q: %w", name, err)
	}
	if err := tables.apply(ctx, rules.portChainDeletion()); err != nil {
		// Somebody else's plugin has just begun to use them.
		log.Warn("cannot remove the port mapping chains", "error", err)
	}
	return removeLink(name)
}

// Conf returns the network's CNI configuration with the given CNI capabilities.
// Masquerading is ours, one rule for the whole subnet: the bridge plugin's own costs a
// chain, and 40 ms to remove it, per pod.
func (b Bridge) Conf(capabilities []string) ([]byte, error) {
	type object map[string]any
	plugins := []object{{
		"type": "bridge", "bridge": b.Name, "isGateway": true, "hairpinMode": true, "ipMasq": false, "mtu": b.MTU,
		"ipam": object{
			"type":    "host-local",
			"dataDir": b.Leases,
			"ranges":  [][]object{{{"subnet": b.Subnet.String()}}},
			"routes":  []object{{"dst": "0.0.0.0/0"}},
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
		free := true
		for _, t := range taken {
			free = free && !t.Contains(subnet.IP) && !subnet.Contains(t.IP)
		}
		if free {
			return subnet, nil
		}
	}
	return nil, fault.Permanentf("no network is free for the pods: the machine routes to all of 10.%d.0.0/%d to 10.%d.0.0/%d; "+
		"configure one in a CNI conflist", firstNet, netBits, firstNet+netCount-1, netBits)
}
