package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/atomicfile"
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
	// StateDir is for what ends with a reboot: the pins of namespaces and the book of
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
	users userns.Book

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
	return &Manager{
		o: o, files: layout{state: o.StateDir, data: o.DataDir},
		users: userns.Book{Dir: filepath.Join(o.StateDir, "users"), Etc: o.EtcDir},
	}
}

// Ensure returns the pod's sandbox, made on the first call. On an error nothing of it is
// left. An error that no retry mends has a method Permanent that returns true.
func (m *Manager) Ensure(ctx context.Context, pod *v1.Pod) (engine.Sandbox, error) {
	sb, err := m.Get(ctx, pod)
	if err == nil {
		return sb, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return engine.Sandbox{}, err
	}
	uid := string(pod.UID) // which Get has checked
	lock, err := m.files.lock(ctx, uid)
	if err != nil {
		return engine.Sandbox{}, podError(pod, "making its sandbox", err)
	}
	defer lock.release()
	// Somebody else may have made it while we waited.
	if sb, err := m.Get(ctx, pod); err == nil {
		return sb, nil
	}
	// A process that was killed half-way, or a reboot, may have left something.
	if err := m.remove(ctx, pod, lock); err != nil {
		return engine.Sandbox{}, err
	}
	sb, err = m.create(ctx, pod, lock)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		return engine.Sandbox{}, errors.Join(err, m.remove(undo, pod, lock))
	}
	return sb, nil
}

// Get returns the pod's sandbox, or an error that wraps fs.ErrNotExist when it has none
// or one of its namespaces is gone.
func (m *Manager) Get(_ context.Context, pod *v1.Pod) (engine.Sandbox, error) {
	uid, err := podUID(pod)
	if err != nil {
		return engine.Sandbox{}, err
	}
	sb, err := readSandbox(m.files.sandbox(uid))
	if err != nil {
		return engine.Sandbox{}, podError(pod, "getting its sandbox", err)
	}
	for _, ns := range pins(sb) {
		if ns.Path != "" && !netns.Alive(ns) {
			return engine.Sandbox{}, podError(pod, "getting its sandbox",
				fmt.Errorf("its %s namespace is gone from %s: %w", ns.Kind, ns.Path, fs.ErrNotExist))
		}
	}
	return sb, nil
}

// Remove releases the pod's addresses and ports and removes its namespaces, whatever a
// crash or a reboot left of them. A pod without a sandbox is no error.
func (m *Manager) Remove(ctx context.Context, pod *v1.Pod) error {
	uid, err := podUID(pod)
	if err != nil {
		return err
	}
	if m.files.absent(uid) {
		return m.releaseUsers(pod)
	}
	lock, err := m.files.lock(ctx, uid)
	if err != nil {
		return podError(pod, "removing its sandbox", err)
	}
	defer lock.release()
	return m.remove(ctx, pod, lock)
}

func (m *Manager) remove(ctx context.Context, pod *v1.Pod, lock podLock) error {
	uid := string(pod.UID)
	// First what says that the sandbox is whole: a crash after this makes it anew.
	if err := atomicfile.Remove(m.files.sandbox(uid)); err != nil {
		return podError(pod, "removing its sandbox", err)
	}
	if err := m.detach(ctx, uid, lock); err != nil {
		return podError(pod, "releasing its addresses", err)
	}
	if err := netns.Remove(m.files.pins(uid)); err != nil {
		return podError(pod, "removing its namespaces", err)
	}
	return m.releaseUsers(pod)
}

func (m *Manager) releaseUsers(pod *v1.Pod) error {
	if err := m.users.Release(string(pod.UID)); err != nil {
		return podError(pod, "removing its namespaces", err)
	}
	return nil
}

func (m *Manager) create(ctx context.Context, pod *v1.Pod, lock podLock) (engine.Sandbox, error) {
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
		networks, err := m.attach(ctx, a, lock)
		if err != nil {
			return engine.Sandbox{}, podError(pod, "attaching it", err)
		}
		sb.IPs, sb.Annotations = networks[0].IPs, annotations(networks)
	}
	if err := sysctl.Apply(pins(sb), parameters, int(sb.FirstID)); err != nil {
		return engine.Sandbox{}, podError(pod, "setting its kernel parameters", err)
	}
	if err := writeJSON(m.files.sandbox(string(pod.UID)), sb); err != nil {
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
	if sb.FirstID, err = m.users.Ensure(uid); err != nil {
		return sb, err
	}
	sb.UserNS = m.files.pin(uid, netns.User).Path
	return sb, netns.MakeMapped(m.files.pins(uid), kinds, hostname, int(sb.FirstID), engine.UserIDs)
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
