// Package wire puts the real engine, network, volumes and cgroups behind the commands.
package wire

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/able"
	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/ctrd"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/network"
	"github.com/runonce/runonce/runtime/spec"
	"github.com/runonce/runonce/runtime/volume"
)

// defaultRoot is the value of --root when none is given.
const defaultRoot = "/var/lib/runonce"

// The machine's files that containers get copies of.
const (
	hostsFile    = "/etc/hosts"
	resolvConf   = "/etc/resolv.conf"
	resolvedConf = "/run/systemd/resolve/resolv.conf"
)

// Open opens containerd: the embedded one, or the daemon at the place's address. The
// directories of the place must be absolute.
func Open(ctx context.Context, p backend.Place) (backend.Backend, error) {
	e, err := ctrd.Open(ctx, ctrd.Options{Root: p.Root, State: p.State, Namespace: p.Namespace, Address: p.Address, Handlers: p.Handlers, Log: p.Log})
	if err != nil {
		return nil, err
	}
	return &engine{engine: e, place: p, log: p.Log}, nil
}

// engine is an open containerd.
type engine struct {
	engine *ctrd.Engine
	place  backend.Place
	log    *slog.Logger
}

// Close lets containerd go.
func (e *engine) Close() error { return e.engine.Close() }

// pods is the runtime, and what it leaves to its network to clean up.
type pods struct {
	*runtime.Pods
	network *network.Manager
	able    *able.Machine
	log     *slog.Logger
}

// Unable says what the machine lacks, by the UID of the pod that needs it.
func (p pods) Unable(ctx context.Context, all []*v1.Pod) map[types.UID]string {
	for _, pod := range all {
		if able.WantsSELinux(pod) && !hasSELinux() {
			p.log.WarnContext(ctx, "seLinuxOptions have no effect, since the machine has no SELinux", "pod", pod.Namespace+"/"+pod.Name)
		}
	}
	return p.able.Refuse(ctx, all)
}

// Cleanup removes what pods that are gone have left behind.
func (p pods) Cleanup(ctx context.Context) error { return p.network.Cleanup(ctx) }

// Pods puts the rooms of the runtime together.
func (e *engine) Pods(ctx context.Context, o backend.PodsOptions) (backend.Pods, error) {
	tree, err := cgroup.Detect(cgroup.Root)
	if err != nil {
		return nil, err
	}
	tree.Parent = cgroupParent(e.place.Root)
	if err := errors.Join(tree.LimitPids(o.PodPidsLimit), tree.Drive(o.CgroupDriver)); err != nil {
		return nil, err
	}
	machine, err := host.Detect(os.DirFS("/"), tree.V2)
	if err != nil {
		return nil, err
	}
	ips, err := network.HostIPs()
	if err != nil {
		return nil, fmt.Errorf("finding the machine's addresses: %w", err)
	}
	net := network.New(network.Options{
		Records:  o.Records,
		StateDir: filepath.Join(e.place.State, "network"), DataDir: filepath.Join(e.place.Root, "network"), HostIPs: ips, Log: e.log,
		CNIConfDir: o.Network.ConfDir, CNIBinDirs: o.Network.BinDirs, PodCIDRs: o.Network.PodCIDRs, ClusterDomain: o.Network.ClusterDomain,
	})
	can := e.able()
	recursive := func(pod *v1.Pod) bool { return can.Features(ctx, pod).RecursiveReadOnly }
	p, err := runtime.New(ctx, runtime.Options{
		Engine: e.engine, Sandboxes: net, Cgroups: tree, Objects: o.Objects, Devices: o.Devices,
		Volumes: &volume.Manager{
			Root: e.place.Root, Objects: o.Objects, ClaimsDir: e.place.ClaimsDir, Allocatable: o.Node.Status.Allocatable, RecursiveReadOnly: recursive,
		},
		Node: node(o.Node, ips),
		Host: runtime.Host{
			Host: machine, CgroupV2: tree.V2, CgroupOptions: tree.Options, ResolvConf: resolvConfOf(os.ReadFile), HostsFile: hostsFile,
			SeccompDir: filepath.Join(e.place.Root, "seccomp"), AppArmor: ctrd.HasAppArmor(), SELinux: hasSELinux(),
			ClusterDNS: o.Network.ClusterDNS, ClusterDomain: o.Network.ClusterDomain,
		},
		RecursiveReadOnly: recursive,
		Records:           o.Records, LogDir: e.place.LogDir, LocalImages: o.LocalImages, Log: e.log, Trace: o.Trace,
	})
	if err != nil {
		return nil, err
	}
	return pods{p, net, can, e.log}, nil
}

// hasSELinux says whether the kernel has a policy of SELinux loaded.
func hasSELinux() bool {
	_, err := os.Stat("/sys/fs/selinux/enforce")
	return err == nil
}

// able is what this machine can do with the engine.
func (e *engine) able() *able.Machine {
	return &able.Machine{
		Files: os.DirFS("/"), CanMapUsers: e.engine.CanMapUsers, AppArmor: ctrd.HasAppArmor(),
		Runtime: e.engine.RuntimeFeatures,
	}
}

// cgroupParent returns the cgroup for the pods of a root. The same manifests give the same
// pods in every root, which must not share their cgroups.
func cgroupParent(root string) string {
	if root == defaultRoot {
		return cgroup.DefaultParent
	}
	sum := sha256.Sum256([]byte(root))
	return cgroup.DefaultParent + "-" + hex.EncodeToString(sum[:4])
}

func node(n *v1.Node, ips []string) spec.Node {
	memory := n.Status.Capacity[v1.ResourceMemory]
	return spec.Node{Name: n.Name, IPs: ips, MemoryCapacity: memory.Value(), Allocatable: n.Status.Allocatable}
}

// resolvConfOf returns the resolver configuration that holds in other network namespaces,
// too: not the one of systemd-resolved's stub, which listens on the machine's loopback.
func resolvConfOf(read func(string) ([]byte, error)) string {
	text, err := read(resolvConf)
	if err != nil {
		return resolvConf
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] == "nameserver" && !strings.HasPrefix(f[1], "127.0.0.53") {
			return resolvConf
		}
	}
	if _, err := read(resolvedConf); err != nil {
		return resolvConf
	}
	return resolvedConf
}
