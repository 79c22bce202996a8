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

	"github.com/containernetworking/cni/pkg/utils"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/network/namespaces"
	"github.com/runonce/runonce/runtime/record"
)

const (
	// undoTimeout bounds the cleanup after a failed or canceled step. What is not undone by then
	// stays recorded, for the next Ensure or Remove.
	undoTimeout = 10 * time.Second
	// pluginLimit bounds the time of a CNI plugin, and portLimit that for each host port.
	pluginLimit, portLimit = 20 * time.Second, 200 * time.Millisecond
	// recheck is how long the rules of the bridge are taken to be there: a reload of the machine's
	// firewall may delete them at any time.
	recheck = 10 * time.Second
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
	// CNIBinDirs hold the CNI plugins; default /opt/cni/bin, /usr/lib/cni, /usr/libexec/cni and
	// /usr/local/libexec/cni.
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
	bridge    *podBridge // nil until the bridge is ready
	opened    time.Time  // when it was
}

// New returns a Manager. It touches nothing yet.
func New(o Options) *Manager {
	o.CNIConfDir = cmp.Or(o.CNIConfDir, "/etc/cni/net.d")
	o.Path = cmp.Or(o.Path, systemPath(os.Getenv("PATH")))
	o.ClusterDomain = cmp.Or(o.ClusterDomain, "cluster.local")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if len(o.CNIBinDirs) == 0 {
		o.CNIBinDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni", "/usr/local/libexec/cni"}
	}
	return &Manager{o: o, files: layout{state: o.StateDir, data: o.DataDir}, pluginLimit: pluginLimit}
}

// Ensure returns the pod's sandbox, created on the first call. After an error nothing of it is
// left. An error that no retry can fix has a method Permanent that returns true. lock is the
// pod's, and the CNI plugins inherit it.
func (m *Manager) Ensure(ctx context.Context, pod *v1.Pod, lock record.Lock) (engine.Sandbox, error) {
	sb, err := m.get(pod)
	if errors.Is(err, fs.ErrNotExist) {
		sb, err = m.replace(ctx, pod, lock)
	} else if err == nil {
		m.keep(ctx, pod)
	}
	return sb, podError(pod, err)
}

// Get returns the pod's sandbox, or an error that wraps fs.ErrNotExist when it has none
// or one of its namespaces is gone.
func (m *Manager) Get(_ context.Context, pod *v1.Pod) (engine.Sandbox, error) {
	sb, err := m.get(pod)
	return sb, podError(pod, err)
}

// Remove releases the pod's addresses and ports and removes its namespaces, or what a crash
// or a reboot left of them. A pod without a sandbox is no error. lock is the pod's.
func (m *Manager) Remove(ctx context.Context, pod *v1.Pod, lock record.Lock) error {
	return podError(pod, m.remove(ctx, pod, lock))
}

func podError(pod *v1.Pod, err error) error {
	if err != nil {
		return fmt.Errorf("network of pod %q: %w", pod.Namespace+"/"+pod.Name, err)
	}
	return nil
}

func (m *Manager) get(pod *v1.Pod) (engine.Sandbox, error) { return Recorded(m.o.Records, pod) }

// Recorded returns the sandbox of a pod that is recorded, or an error that wraps fs.ErrNotExist, as Get does.
func Recorded(records *record.Store, pod *v1.Pod) (engine.Sandbox, error) {
	if err := checkUID(pod); err != nil {
		return engine.Sandbox{}, err
	}
	r, err := records.Load(pod.UID)
	if err != nil {
		return engine.Sandbox{}, err
	}
	// Without the boot, a pod without namespaces of its own would seem to have survived a reboot.
	if r.Sandbox == nil || r.Sandbox.BootID != process.BootID() {
		return engine.Sandbox{}, fmt.Errorf("getting its sandbox: %w", fs.ErrNotExist)
	}
	for _, ns := range pins(*r.Sandbox) {
		if ns.Path != "" && !namespaces.Alive(ns) {
			return engine.Sandbox{}, fmt.Errorf("its %s namespace is gone from %s: %w", ns.Kind, ns.Path, fs.ErrNotExist)
		}
	}
	return *r.Sandbox, nil
}

// checkUID returns an error when the pod's UID cannot be the name of files and CNI containers.
func checkUID(pod *v1.Pod) error {
	if utils.ValidateContainerID(string(pod.UID)) != nil {
		return failure.Permanentf("metadata.uid %q: must be letters, digits, '.', '_' and '-', and start with a letter or digit", pod.UID)
	}
	return nil
}

// replace creates the sandbox after removing what a killed process or a reboot may have left.
func (m *Manager) replace(ctx context.Context, pod *v1.Pod, lock record.Lock) (engine.Sandbox, error) {
	if err := m.remove(ctx, pod, lock); err != nil {
		return engine.Sandbox{}, err
	}
	sb, err := m.create(ctx, pod, lock)
	if err != nil {
		undo, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoTimeout, fmt.Errorf("it did not finish within %s", undoTimeout))
		defer cancel()
		if failed := m.remove(undo, pod, lock); failed != nil {
			err = errors.Join(err, fmt.Errorf("undoing that, which the next attempt or runonce down does: %w", failed))
		}
		return engine.Sandbox{}, err
	}
	return sb, nil
}

func (m *Manager) create(ctx context.Context, pod *v1.Pod, lock record.Lock) (sb engine.Sandbox, err error) {
	parameters, err := kernelParameters(pod)
	if err != nil {
		return sb, err
	}
	hostname, domain, err := m.hostname(pod)
	if err != nil {
		return sb, err
	}
	var a *attachment
	if pod.Spec.HostNetwork {
		m.warnHostNetwork(pod)
	} else if a, err = m.plan(ctx, pod); err != nil {
		return sb, err
	}
	if sb, err = m.makeNamespaces(pod, hostname); err != nil {
		return sb, err
	}
	sb.IPs, sb.Domain = m.o.HostIPs, domain
	if a != nil {
		networks, err := m.attach(ctx, pod, a, lock)
		if err != nil {
			return sb, err
		}
		sb.IPs, sb.Annotations = networks[0].IPs, annotations(networks)
	}
	if err := setKernelParameters(pins(sb), parameters, int(sb.FirstID)); err != nil {
		return sb, err
	}
	sb.BootID = process.BootID()
	return sb, m.update(pod, func(r *record.Pod) { r.Sandbox = &sb })
}

func (m *Manager) remove(ctx context.Context, pod *v1.Pod, lock record.Lock) error {
	if err := checkUID(pod); err != nil {
		return err
	}
	r, err := m.o.Records.Load(pod.UID)
	if errors.Is(err, fs.ErrNotExist) {
		r, err = &record.Pod{}, nil
	}
	if err != nil {
		return err
	}
	if r.Sandbox != nil {
		// First the record that the sandbox is complete: after a crash it is created again.
		if err := m.update(pod, func(r *record.Pod) { r.Sandbox, r.Ready = nil, false }); err != nil {
			return err
		}
	}
	if err := m.detach(ctx, r, lock); err != nil {
		return err
	}
	uid := string(pod.UID)
	if err := namespaces.Remove(m.files.pins(uid)); err != nil {
		return err
	}
	if len(r.Attachment) == 0 && r.FirstUserID == 0 {
		return nil
	}
	return m.update(pod, func(r *record.Pod) { r.Attachment, r.FirstUserID = nil, 0 })
}
