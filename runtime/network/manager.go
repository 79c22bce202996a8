// Package network gives each pod its namespaces and its network: net, ipc, uts and user
// namespaces pinned to files, so that no process has to keep them alive, and addresses and
// host ports by CNI.
package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/network/bridge"
	"github.com/runonce/runonce/runtime/network/cni"
	"github.com/runonce/runonce/runtime/network/namespaces"
	"github.com/runonce/runonce/runtime/record"
)

const (
	// undoTimeout bounds the cleanup after a failed or canceled step.
	undoTimeout = 30 * time.Second
	// pluginLimit bounds the time of a network's CNI plugins: the kubelet's runtimeRequestTimeout.
	pluginLimit = 2 * time.Minute
)

// Options says where a Manager keeps its files and what it finds on the machine.
type Options struct {
	// Records are those of the pods.
	Records *record.Store
	// StateDir is for what ends with a reboot: pinned namespaces and leases of addresses.
	// DataDir outlives it.
	StateDir, DataDir string
	// CNIConfDir holds the machine's own network configuration, default /etc/cni/net.d.
	// Without any the pods get a bridge of ours.
	CNIConfDir string
	// CNIBinDirs hold the CNI plugins; default /opt/cni/bin, /usr/lib/cni and
	// /usr/libexec/cni.
	CNIBinDirs []string
	// Path holds the directories of iptables and nft, separated by colons. Default: PATH and
	// the usual directories of system programs.
	Path string
	// PodCIDRs are the networks of that bridge, at most one of each family; by default a free
	// one of IPv4.
	PodCIDRs []*net.IPNet
	// HostIPs are the addresses of pods on the host network; see HostIPs.
	HostIPs []string
	// ClusterDomain is the domain of pods with a subdomain, default cluster.local.
	ClusterDomain string
	// Log gets warnings, and what was cleaned up after earlier processes. Default: nowhere.
	Log *slog.Logger
}

// Manager gives pods their sandboxes. Its methods are safe for concurrent use by
// different pods, also by several processes on one state directory.
type Manager struct {
	o           Options
	files       layout
	pluginLimit time.Duration

	// mu guards the fields below: what is done once per process, at the first pod that
	// needs a network. It is locked while a pod's lock is held, and nobody who holds it waits
	// for a pod's lock.
	mu        sync.Mutex
	collected bool
	bridge    *bridge.Bridge // nil until the bridge is ready
}

// New returns a Manager. It touches nothing yet.
func New(o Options) *Manager {
	o.CNIConfDir = cmp.Or(o.CNIConfDir, "/etc/cni/net.d")
	o.Path = cmp.Or(o.Path, cni.SystemPath(os.Getenv("PATH")))
	o.ClusterDomain = cmp.Or(o.ClusterDomain, "cluster.local")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if len(o.CNIBinDirs) == 0 {
		o.CNIBinDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}
	}
	return &Manager{o: o, files: layout{state: o.StateDir, data: o.DataDir}, pluginLimit: pluginLimit}
}

// Ensure returns the pod's sandbox, created on the first call. After an error nothing of it is
// left. An error that no retry can fix has a method Permanent that returns true. lock is the
// pod's, and the CNI plugins inherit it.
func (m *Manager) Ensure(ctx context.Context, pod *v1.Pod, lock record.Lock) (engine.Sandbox, error) {
	sb, err := m.Get(ctx, pod)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return sb, err
	}
	// A killed process or a reboot may have left something.
	if err := m.Remove(ctx, pod, lock); err != nil {
		return engine.Sandbox{}, err
	}
	sb, err = m.create(ctx, pod, lock)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
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
		err = fs.ErrNotExist
	}
	if err != nil {
		return engine.Sandbox{}, podError(pod, "getting its sandbox", err)
	}
	for _, ns := range pins(*r.Sandbox) {
		if ns.Path != "" && !namespaces.Alive(ns) {
			return engine.Sandbox{}, podError(pod, "getting its sandbox",
				fmt.Errorf("its %s namespace is gone from %s: %w", ns.Kind, ns.Path, fs.ErrNotExist))
		}
	}
	return *r.Sandbox, nil
}

// Remove releases the pod's addresses and ports and removes its namespaces, or what a crash
// or a reboot left of them. A pod without a sandbox is no error. lock is the pod's.
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
		// First the record that the sandbox is complete: after a crash it is created again.
		if err := m.update(pod, func(r *record.Pod) error { r.Sandbox = nil; return nil }); err != nil {
			return podError(pod, "removing its sandbox", err)
		}
	}
	if err := m.detach(ctx, r, lock); err != nil {
		return podError(pod, "releasing its addresses", err)
	}
	if err := namespaces.Remove(m.files.pins(uid)); err != nil {
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
	parameters, err := kernelParameters(pod)
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
	} else if a, err = m.plan(ctx, pod); err != nil {
		return engine.Sandbox{}, podError(pod, "preparing its network", err)
	}
	sb, err := m.makeNamespaces(pod, hostname)
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
	if err := setKernelParameters(pins(sb), parameters, int(sb.FirstID)); err != nil {
		return engine.Sandbox{}, podError(pod, "setting its kernel parameters", err)
	}
	sb.BootID = bootID()
	if err := m.update(pod, func(r *record.Pod) error { r.Sandbox = &sb; return nil }); err != nil {
		return engine.Sandbox{}, podError(pod, "recording its sandbox", err)
	}
	return sb, nil
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
