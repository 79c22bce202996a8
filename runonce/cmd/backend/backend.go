package backend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/network"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/service"
	"github.com/runonce/runonce/runtime/volume"
)

// DefaultRoot is the default of --root.
const DefaultRoot = "/var/lib/runonce"

// Files of the machine that are copied into containers.
const (
	hostsFile    = "/etc/hosts"
	resolvConf   = "/etc/resolv.conf"
	resolvedConf = "/run/systemd/resolve/resolv.conf"
)

// Open opens the embedded containerd, or the daemon at the address.
func Open(ctx context.Context, o Options) (Engine, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	m := &machineEngine{tree: sync.OnceValues(detectCgroups)}
	if err := o.checkPrivileges(m.tree); err != nil {
		return nil, err
	}
	o.Trial = o.trial()
	o.AdoptShim = m.adoptShim
	e, err := containerd.Open(ctx, o.Options)
	if err != nil {
		return nil, err
	}
	m.Engine, m.o, m.preflight = e, o, &host.Preflight{
		Files: os.DirFS("/"), CanMapUsers: e.CanMapUsers, AppArmor: containerd.HasAppArmor(), RuntimeFeatures: e.RuntimeFeatures,
		SeccompDefault: o.SeccompDefault, SeccompDir: seccompDir(o.Root), RootfsDir: rootfsDir(o),
	}
	return m, nil
}

// AdvicePrivileged says what to do where root lacks privileges.
const AdvicePrivileged = "in a container, start that one privileged (docker run --privileged)"

// checkPrivileges refuses to start containers where each of them would fail.
func (o Options) checkPrivileges(tree func() (cgroup.Tree, error)) error {
	if o.StartsNothing {
		return nil
	}
	lacking, err := host.Lacking(os.DirFS("/"))
	if err != nil {
		return err
	}
	if slices.Contains(lacking, host.CapSysAdmin) { // without others, some pods can be run
		return fmt.Errorf("root lacks %s, which starting containers takes: %s", strings.Join(lacking, ", "), AdvicePrivileged)
	}
	if _, err = tree(); errors.Is(err, cgroup.ErrReadOnly) {
		return err
	}
	return nil
}

// detectCgroups returns the cgroups of this machine. An error says what to do if it shows that this container is not
// privileged.
func detectCgroups() (cgroup.Tree, error) {
	tree, err := cgroup.Detect(cgroup.Root)
	if errors.Is(err, cgroup.ErrReadOnly) {
		err = fmt.Errorf("%w: %s", err, AdvicePrivileged)
	}
	return tree, err
}

// rootfsDir returns where the embedded containerd mounts root file systems, "" for that of a daemon.
func rootfsDir(o Options) string {
	if o.Address != "" {
		return ""
	}
	dir, err := filepath.EvalSymlinks(o.State)
	if err != nil {
		return ""
	}
	return server.TasksDir(dir)
}

// adoptShim gives a shim the cgroup of shims. Without the right to make one, it runs in the caller's.
func (e *machineEngine) adoptShim(ctx context.Context, podUID string, pid int) {
	if err := e.cgroups.AdoptShim(ctx, types.UID(podUID), pid); err != nil {
		e.o.Log.DebugContext(ctx, "the shim stays in the cgroup of the caller", "error", err)
	}
}

func seccompDir(root string) string { return filepath.Join(root, "seccomp") }

// machineEngine is containerd with the network, volumes and cgroups of this machine.
type machineEngine struct {
	*containerd.Engine
	o         Options
	tree      func() (cgroup.Tree, error) // as it was detected
	preflight *host.Preflight
	network   *network.Manager // set by Pods
	services  *service.Keeper  // set by Pods
	cgroups   cgroup.Tree      // set by Pods
	pull      image.Mode       // set by Pods
}

func (e *machineEngine) Unsupported(ctx context.Context, pods []*v1.Pod) map[types.UID]string {
	for _, pod := range pods {
		if host.HasSELinuxOptions(pod) && !hasSELinux() {
			e.o.Log.WarnContext(ctx, "ignoring seLinuxOptions: the machine has no SELinux", "pod", podspec.FullName(pod))
		}
	}
	return e.preflight.Check(ctx, pods)
}

func (e *machineEngine) Check(pods []*v1.Pod) error {
	return errors.Join(e.network.Check(pods), e.checkRegistries(pods))
}

// checkRegistries checks the files that say how to pull the images of the pods, if some may be
// pulled.
func (e *machineEngine) checkRegistries(pods []*v1.Pod) error {
	var refs []string
	for _, pod := range pods {
		for _, i := range podspec.Images(pod) {
			if i.Policy != v1.PullNever {
				refs = append(refs, *i.Ref)
			}
		}
	}
	if len(refs) == 0 || e.pull == image.Never {
		return nil
	}
	return e.CheckRegistries(refs)
}

func (e *machineEngine) Cleanup(ctx context.Context) error {
	return errors.Join(e.network.Cleanup(ctx), e.RemoveLeft(ctx))
}

// Pods completes the options with the engine and with the network, volumes and cgroups of this
// machine.
func (e *machineEngine) Pods(ctx context.Context, n *v1.Node, o runtime.Options) (*runtime.Pods, error) {
	tree, detected, err := e.o.detect(e.tree)
	if err != nil {
		return nil, err
	}
	net := e.o.Network
	if net.HostIPs, err = network.HostIPs(); err != nil {
		return nil, fmt.Errorf("getting the addresses of the machine: %w", err)
	}
	net.Records, net.Log = o.Records, e.o.Log
	e.pull = o.Pull
	net.StateDir, net.DataDir = filepath.Join(e.o.State, "network"), filepath.Join(e.o.Root, "network")
	e.network = network.New(net)
	o.Engine, o.Sandboxes, o.Cgroups, o.Runtime = e.Engine, e.network, tree, e.Chosen().Path
	e.services = e.newServices(net)
	o.Services = e.services
	e.cgroups = tree
	o.Volumes = &volume.Manager{
		Root: e.o.PodsRoot, Objects: o.Objects, ClaimsDir: e.o.ClaimsDir, Allocatable: n.Status.Allocatable,
		RecursiveReadOnly: func(pod *v1.Pod) bool { return e.preflight.Features(ctx, pod).RecursiveReadOnly }, Mounter: volume.HostMounts{},
	}
	o.Node = specNode(n, net.HostIPs)
	detected.SeccompDefault = e.o.SeccompDefault
	if e.o.LimitedSwap {
		if detected.Swap, err = host.Swap(os.DirFS("/"), detected); err != nil {
			return nil, fmt.Errorf("limited swap: %w", err)
		}
	}
	resolver, _, _ := ResolvConf(os.DirFS("/"))
	detected.AppArmor, detected.SELinux = containerd.HasAppArmor(), hasSELinux()
	o.Host = runtime.Host{
		Host: detected, ResolvConf: resolver, HostsFile: hostsFile,
		SeccompDir: seccompDir(e.o.Root),
		ClusterDNS: e.o.ClusterDNS, ClusterDomain: net.ClusterDomain,
	}
	return runtime.New(ctx, o)
}

// detect returns the cgroups of this machine, as they are for these options, and what it can give to containers.
func (o Options) detect(cgroups func() (cgroup.Tree, error)) (cgroup.Tree, ocispec.Host, error) {
	tree, err := cgroups()
	if err != nil {
		return tree, ocispec.Host{}, err
	}
	tree.Parent = CgroupParent(o.PodsRoot)
	if err := errors.Join(tree.LimitPids(o.PodPidsLimit), tree.SetDriver(o.CgroupDriver)); err != nil {
		return tree, ocispec.Host{}, err
	}
	detected, err := host.Detect(os.DirFS("/"), tree)
	return tree, detected, err
}

// LeaveShims moves this process, if a shim has started it, out of the cgroup that is removed with the last shim.
func LeaveShims() error {
	tree, err := cgroup.Detect(cgroup.Root)
	if err != nil {
		return err
	}
	return tree.LeaveShims()
}

// hasSELinux says whether an SELinux policy is loaded.
func hasSELinux() bool {
	_, err := os.Stat("/sys/fs/selinux/enforce")
	return err == nil
}

// CgroupParent returns the parent cgroup for the pods of a root. Pods of the same manifests have
// the same names in every root, but must not share cgroups.
func CgroupParent(root string) string {
	if root == DefaultRoot {
		return cgroup.DefaultParent
	}
	return cgroup.ParentOf(root)
}

func specNode(n *v1.Node, ips []string) ocispec.Node {
	memory := n.Status.Capacity[v1.ResourceMemory]
	return ocispec.Node{Name: n.Name, IPs: ips, MemoryCapacity: memory.Value(), Allocatable: n.Status.Allocatable}
}

// ResolvConf returns the resolver configuration for other network namespaces, and its text: not that of the stub
// resolver of systemd-resolved, which listens on the loopback interface of the machine.
func ResolvConf(machine fs.FS) (path, text string, err error) {
	read := func(path string) (string, error) {
		data, err := fs.ReadFile(machine, strings.TrimPrefix(path, "/"))
		return string(data), err
	}
	text, err = read(resolvConf)
	if err != nil {
		return resolvConf, "", err
	}
	isStub := func(server string) bool { return strings.HasPrefix(server, "127.0.0.53") }
	if slices.ContainsFunc(ocispec.Nameservers(text), func(s string) bool { return !isStub(s) }) {
		return resolvConf, text, nil
	}
	if other, err := read(resolvedConf); err == nil {
		return resolvedConf, other, nil
	}
	return resolvConf, text, nil
}
