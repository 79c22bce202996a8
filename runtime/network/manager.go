package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/network/bridge"
	"github.com/runonce/runonce/runtime/network/cni"
	"github.com/runonce/runonce/runtime/network/hostnet"
	"github.com/runonce/runonce/runtime/network/netns"
	"github.com/runonce/runonce/runtime/network/sysctl"
	"github.com/runonce/runonce/runtime/network/userns"
)

// undoTime bounds the cleaning up after a failed or canceled step.
const undoTime = 30 * time.Second

// Options says where a Manager keeps its files and what it finds on the machine.
type Options struct {
	// Records keeps what outlives a process.
	Records *record.Store
	// StateDir is for what ends with a reboot: the pins of namespaces and the leases of
	// addresses. DataDir outlives it.
	StateDir, DataDir string
	// CNIConfDir holds the machine's own network configuration, default /etc/cni/net.d.
	// Without one there the pods get a bridge of their own.
	CNIConfDir string
	// CNIBinDirs hold the CNI plugins; default /opt/cni/bin, /usr/lib/cni and
	// /usr/libexec/cni.
	CNIBinDirs []string
	// PluginLimit bounds the work of a network's CNI plugins, default 2 minutes, the kubelet's
	// runtimeRequestTimeout.
	PluginLimit time.Duration
	// Path holds the directories of iptables and nft, separated by colons. Default: PATH,
	// and where systems keep such programs.
	Path string
	// PodCIDRs are the networks of that bridge, at most one of each family; by default it
	// chooses one of IPv4 that is free.
	PodCIDRs []*net.IPNet
	// EtcDir holds the machine's subuid and subgid files, default /etc.
	EtcDir string
	// HostIPs are the addresses of pods on the host network; see HostIPs.
	HostIPs []string
	// ClusterDomain is the domain of pods with a subdomain, default cluster.local.
	ClusterDomain string
	// Log gets what was cleaned up after earlier processes. Default: nowhere.
	Log *slog.Logger
}

// Manager gives pods their sandboxes. Its methods are safe for concurrent use by
// different pods, also by several processes on one state directory.
type Manager struct {
	o     Options
	files layout

	// mu guards the fields below: what is done once per process, at the first pod that
	// needs a network. It is taken under a pod's lock, and no pod's lock is waited for
	// under it.
	mu        sync.Mutex
	collected bool
	bridge    *bridge.Bridge // nil until the bridge is known to be ready
	ownPorts  bool           // of the bridge: host ports are not the plugins'
}

// New returns a Manager. It touches nothing yet.
func New(o Options) *Manager {
	if o.CNIConfDir == "" {
		o.CNIConfDir = "/etc/cni/net.d"
	}
	if len(o.CNIBinDirs) == 0 {
		o.CNIBinDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}
	}
	if o.PluginLimit == 0 {
		o.PluginLimit = 2 * time.Minute
	}
	if o.Path == "" {
		o.Path = hostnet.SystemPath(os.Getenv("PATH"))
	}
	if o.ClusterDomain == "" {
		o.ClusterDomain = "cluster.local"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.EtcDir == "" {
		o.EtcDir = "/etc"
	}
	return &Manager{o: o, files: layout{state: o.StateDir, data: o.DataDir}}
}

// Ensure returns the pod's sandbox, made on the first call. On an error nothing of it is
// left. An error that no retry can help has a method Permanent that returns true. lock is the
// pod's, which the CNI plugins inherit.
func (m *Manager) Ensure(ctx context.Context, pod *v1.Pod, lock record.Lock) (engine.Sandbox, error) {
	sb, err := m.Get(ctx, pod)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return sb, err
	}
	// A process that was killed half-way, or a reboot, may have left something.
	if err := m.Remove(ctx, pod, lock); err != nil {
		return engine.Sandbox{}, err
	}
	sb, err = m.create(ctx, pod, lock)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		return engine.Sandbox{}, errors.Join(err, m.Remove(undo, pod, lock))
	}
	return sb, nil
}

// Get returns the pod's sandbox, or an error that wraps fs.ErrNotExist when it has none
// or one of its namespaces is gone.
func (m *Manager) Get(_ context.Context, pod *v1.Pod) (engine.Sandbox, error) {
	if _, err := podUID(pod); err != nil {
		return engine.Sandbox{}, err
	}
	r, err := m.o.Records.Load(pod.UID)
	if err == nil && (r.Sandbox == nil || r.Sandbox.BootID != bootID()) {
		err = fmt.Errorf("it has none: %w", fs.ErrNotExist)
	}
	if err != nil {
		return engine.Sandbox{}, podError(pod, "getting its sandbox", err)
	}
	for _, ns := range pins(*r.Sandbox) {
		if ns.Path != "" && !netns.Alive(ns) {
			return engine.Sandbox{}, podError(pod, "getting its sandbox",
				fmt.Errorf("its %s namespace is gone from %s: %w", ns.Kind, ns.Path, fs.ErrNotExist))
		}
	}
	return *r.Sandbox, nil
}

// bootID names this boot of the machine. Without it, a pod without namespaces of its own is
// taken to have lived through a reboot.
var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})

// Remove releases the pod's addresses and ports and removes its namespaces, whatever a
// crash or a reboot left of them. A pod without a sandbox is no error. lock is the pod's.
func (m *Manager) Remove(ctx context.Context, pod *v1.Pod, lock record.Lock) error {
	uid, err := podUID(pod)
	if err != nil {
		return err
	}
	r, err := m.o.Records.Load(pod.UID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r = &record.Pod{}
	case err != nil:
		return podError(pod, "removing its sandbox", err)
	}
	if r.Sandbox != nil {
		// First what says that the sandbox is whole: a crash after this makes it again.
		if err := m.update(pod, func(r *record.Pod) error { r.Sandbox = nil; return nil }); err != nil {
			return podError(pod, "removing its sandbox", err)
		}
	}
	if err := m.detach(ctx, r, lock); err != nil {
		return podError(pod, "releasing its addresses", err)
	}
	if err := netns.Remove(m.files.pins(uid)); err != nil {
		return podError(pod, "removing its namespaces", err)
	}
	_ = os.Remove(m.files.pod(uid)) // which is empty
	if len(r.Attachment) == 0 && r.FirstUserID == 0 {
		return nil
	}
	err = m.update(pod, func(r *record.Pod) error { r.Attachment, r.FirstUserID = nil, 0; return nil })
	if err != nil {
		return podError(pod, "removing its sandbox", err)
	}
	return nil
}

func (m *Manager) create(ctx context.Context, pod *v1.Pod, lock record.Lock) (engine.Sandbox, error) {
	parameters, err := sysctl.Of(pod)
	if err != nil {
		return engine.Sandbox{}, podError(pod, "reading its spec", err)
	}
	hostname, domain, err := m.hostname(pod)
	if err != nil {
		return engine.Sandbox{}, podError(pod, "naming it", err)
	}
	var a *attachment
	if pod.Spec.HostNetwork {
		m.warnHostNetwork(pod)
	} else {
		if a, err = m.plan(ctx, pod); err != nil {
			return engine.Sandbox{}, podError(pod, "preparing its network", err)
		}
	}
	sb, err := m.pinAll(pod, hostname)
	if err != nil {
		return engine.Sandbox{}, podError(pod, "making its namespaces", err)
	}
	sb.IPs, sb.Domain = m.o.HostIPs, domain
	if a != nil {
		networks, err := m.attach(ctx, pod, a, lock)
		if err != nil {
			return engine.Sandbox{}, podError(pod, "attaching it", err)
		}
		sb.IPs, sb.Annotations = networks[0].IPs, annotations(networks)
	}
	if err := sysctl.Apply(pins(sb), parameters, int(sb.FirstID)); err != nil {
		return engine.Sandbox{}, podError(pod, "setting its kernel parameters", err)
	}
	sb.BootID = bootID()
	if err := m.update(pod, func(r *record.Pod) error { r.Sandbox = &sb; return nil }); err != nil {
		return engine.Sandbox{}, podError(pod, "recording its sandbox", err)
	}
	return sb, nil
}

// warnHostNetwork tells of annotations that a pod on the host's network has for nothing.
func (m *Manager) warnHostNetwork(pod *v1.Pod) {
	for _, name := range []string{cni.IngressAnnotation, cni.EgressAnnotation, cni.NetworksAnnotation} {
		if _, ok := pod.Annotations[name]; ok {
			m.o.Log.Warn("annotation has no effect with spec.hostNetwork", "pod", pod.Namespace+"/"+pod.Name, "annotation", name)
		}
	}
}

// hostname returns the name inside the pod and the pod's domain. A pod on the host's
// network has the host's, as under the kubelet's runtimes.
func (m *Manager) hostname(pod *v1.Pod) (name, domain string, err error) {
	if !pod.Spec.HostNetwork {
		return kernelHostname(pod, m.o.ClusterDomain)
	}
	if name, err = os.Hostname(); err != nil {
		return "", "", fmt.Errorf("reading the host's name: %w", err)
	}
	return name, "", nil
}

// pinAll makes the namespaces that the pod does not share with the host.
func (m *Manager) pinAll(pod *v1.Pod, hostname string) (engine.Sandbox, error) {
	sb := engine.Sandbox{Hostname: hostname}
	uid := string(pod.UID)
	var kinds []netns.Kind
	if !pod.Spec.HostNetwork {
		sb.NetNS, sb.UTSNS = m.files.pin(uid, netns.Net).Path, m.files.pin(uid, netns.UTS).Path
		kinds = append(kinds, netns.Net, netns.UTS)
	}
	if !pod.Spec.HostIPC {
		sb.IPCNS = m.files.pin(uid, netns.IPC).Path
		kinds = append(kinds, netns.IPC)
	}
	if len(kinds) == 0 {
		return sb, nil
	}
	if err := os.MkdirAll(m.files.pins(uid), 0o711); err != nil {
		return sb, fmt.Errorf("making the directory of namespaces: %w", err)
	}
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return sb, netns.Make(m.files.pins(uid), kinds, hostname)
	}
	var err error
	if sb.FirstID, err = m.chooseUsers(pod); err != nil {
		return sb, err
	}
	sb.UserNS = m.files.pin(uid, netns.User).Path
	return sb, netns.MakeMapped(m.files.pins(uid), kinds, hostname, int(sb.FirstID), engine.UserIDs)
}

// chooseUsers gives the pod user IDs that no other pod has.
func (m *Manager) chooseUsers(pod *v1.Pod) (uint32, error) {
	ids, err := userns.Source(m.o.EtcDir)
	if err != nil {
		return 0, err
	}
	r, err := m.o.Records.UpdateAmong(pod.UID, func(r *record.Pod, others []*record.Pod) (err error) {
		if r.Pod == nil {
			r.Pod = pod
		}
		taken := map[uint32]bool{}
		for _, o := range others {
			taken[o.FirstUserID] = true
		}
		r.FirstUserID, err = ids.Choose(taken)
		return err
	})
	if err != nil {
		return 0, err
	}
	return r.FirstUserID, nil
}

// podUID returns the pod's UID if it can serve as the name of files and CNI containers.
func podUID(pod *v1.Pod) (string, error) {
	uid := string(pod.UID)
	for i := range len(uid) {
		c := uid[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return "", podError(pod, "reading its spec", failure.Permanentf("metadata.uid %q: must be letters, digits, '.', '_' and '-'", uid))
		}
	}
	if uid == "" {
		return "", podError(pod, "reading its spec", failure.Permanentf("metadata.uid is empty"))
	}
	return uid, nil
}

func podError(pod *v1.Pod, op string, err error) error {
	return fmt.Errorf("network of pod %q: %s: %w", pod.Namespace+"/"+pod.Name, op, err)
}
