package backend

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/network"
	"github.com/runonce/runonce/runtime/service"
	"github.com/runonce/runonce/runtime/service/rules"
)

// Services returns what keeps the Services of the root.
func (e *machineEngine) Services() *service.Keeper { return e.services }

// Close has the names and Services be as the pods are, and ends the engine's work.
func (e *machineEngine) Close() error {
	if e.services != nil {
		e.services.Flush()
	}
	return e.Engine.Close()
}

// newServices returns what keeps the Services of pods in the network.
func (e *machineEngine) newServices(o network.Options) *service.Keeper {
	bridge := network.BridgeName(o.StateDir)
	return service.New(service.Options{
		Records: o.Records, Kernel: kernel{}, Table: rules.TableName(bridge), Bridge: bridge, HostIPs: o.HostIPs, ClusterDomain: o.ClusterDomain, Log: o.Log,
		HostsFile: func(uid types.UID) string { return filepath.Join(o.Records.Dir(uid), runtime.HostsFile) },
		Ranges:    e.o.ServiceCIDRs, Families: families(o.PodCIDRs),
		FreeRange: func(f v1.IPFamily) (netip.Prefix, error) { return network.FreeServiceRange(bridge, f) },
		LookUp: func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		},
	})
}

// families are those of the pods' addresses: those of their networks, the first one by default.
func families(podCIDRs []*net.IPNet) []v1.IPFamily {
	if len(podCIDRs) == 0 {
		return []v1.IPFamily{v1.IPv4Protocol}
	}
	all := make([]v1.IPFamily, 0, len(podCIDRs))
	for _, n := range podCIDRs {
		ip, _ := netip.AddrFromSlice(n.IP)
		all = append(all, service.FamilyOf(ip.Unmap()))
	}
	return all
}

// kernel is that of this machine.
type kernel struct{}

func (kernel) Apply(ctx context.Context, t rules.Table) error { return rules.Apply(ctx, t) }
func (kernel) Present(name string) (bool, error)              { return rules.Present(name) }
func (kernel) Remove(ctx context.Context, name string) error  { return rules.Remove(ctx, name) }
