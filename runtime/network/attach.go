package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/network/namespaces"
	"github.com/runonce/runonce/runtime/record"
)

// plan decides which networks the pod joins and checks that the machine has what they need.
func (m *Manager) plan(ctx context.Context, pod *v1.Pod) (*attachment, error) {
	if err := m.collectOnce(ctx); err != nil {
		return nil, err
	}
	uid := string(pod.UID)
	a := &attachment{UID: uid, Namespace: pod.Namespace, Name: pod.Name, NetNS: m.files.pin(uid, namespaces.Net).Path}
	// The additional networks come first: finding them changes nothing on the machine.
	additional, err := m.additional(pod)
	if err != nil {
		return nil, err
	}
	asked, err := capabilitiesOf(pod)
	if err != nil {
		return nil, err
	}
	list, err := m.configured()
	if errors.Is(err, fs.ErrNotExist) {
		list, err = m.bridgeConf(ctx, a, &asked)
	}
	if err != nil {
		return nil, err
	}
	first, err := m.network(list, podInterface, asked)
	if err != nil {
		return nil, err
	}
	if list.Name == BridgeName(m.o.StateDir) {
		first.Dir = "" // nobody else knows its configuration
	}
	a.Networks = append([]podNetwork{first}, additional...)
	return a, nil
}

// configured returns the machine's own network for pods. Without one the error wraps
// fs.ErrNotExist.
func (m *Manager) configured() (*libcni.NetworkConfigList, error) {
	list, err := defaultNetwork(m.o.CNIConfDir)
	if err == nil && len(m.o.PodCIDRs) > 0 {
		return nil, failure.Permanentf("network %q in %s assigns the pods' addresses: they cannot be of the networks %v",
			list.Name, m.o.CNIConfDir, m.o.PodCIDRs)
	}
	return list, err
}

// additional returns the networks of the pod's annotation.
func (m *Manager) additional(pod *v1.Pod) ([]podNetwork, error) {
	selections, err := selectionsOf(pod)
	if err != nil {
		return nil, err
	}
	all := make([]podNetwork, 0, len(selections))
	for _, s := range selections {
		list, err := namedNetwork(m.o.CNIConfDir, s.Name)
		if err != nil {
			return nil, failure.Permanentf("annotation %s: %w", networksAnnotation, err)
		}
		n, err := m.network(list, s.Interface, capabilities{IPs: s.IPs, MAC: s.MAC})
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", networksAnnotation, err)
		}
		n.Alias = s.String()
		all = append(all, n)
	}
	return all, nil
}

// network returns the network for a pod after checking that it can do what is asked.
func (m *Manager) network(list *libcni.NetworkConfigList, iface string, asked capabilities) (podNetwork, error) {
	if err := checkCapabilities(list, asked, m.o.CNIConfDir); err != nil {
		return podNetwork{}, err
	}
	if err := checkPlugins(pluginsOf(list), m.o.CNIBinDirs); err != nil {
		return podNetwork{}, err
	}
	return podNetwork{Name: list.Name, Config: list.Bytes, Dir: m.o.CNIConfDir, Interface: iface, Asked: asked}, nil
}

// attach connects the pod. The record is written first: with it Remove, also in another
// process, undoes whatever the plugins did.
func (m *Manager) attach(ctx context.Context, pod *v1.Pod, a *attachment, lock record.Lock) ([]networkStatus, error) {
	text, _ := json.Marshal(a) // texts and numbers
	if err := m.update(pod, func(r *record.Pod) { r.Attachment = text }); err != nil {
		return nil, err
	}
	all := make([]networkStatus, 0, len(a.Networks))
	for _, n := range a.Networks {
		status, err := m.add(ctx, a, n, lock.File())
		if err != nil {
			return nil, fmt.Errorf("network %q: %w", n.Name, err)
		}
		all = append(all, status)
	}
	if len(all[0].IPs) == 0 {
		return nil, fmt.Errorf("network %q gave the pod no address", a.Networks[0].Name)
	}
	return all, m.ports(a, all[0].IPs, lock.File()).Add(ctx)
}

// ports are the host ports that we map to the pod without a CNI plugin.
func (m *Manager) ports(a *attachment, ips []string, lock *os.File) portRules {
	return portRules{Path: m.o.Path, Lock: lock, Bridge: a.Bridge, UID: a.UID, IPs: ips, Ports: a.Ports}
}

// detach disconnects the pod, as its attachment was recorded. Without a record there is
// nothing to undo.
func (m *Manager) detach(ctx context.Context, r *record.Pod, lock record.Lock) error {
	var a attachment
	err := json.Unmarshal(r.Attachment, &a)
	switch {
	case r.Incomplete() && (err != nil || a.UID == ""):
		return m.detachUnknown(ctx, string(r.Pod.UID), lock)
	case len(r.Attachment) == 0:
		return nil
	case err != nil:
		return fmt.Errorf("reading the record of a network attachment: %w", err)
	}
	if !namespaces.Alive(namespaces.Pin{Kind: namespaces.Net, Path: a.NetNS}) {
		a.NetNS = ""
	}
	err = m.ports(&a, nil, lock.File()).Remove(ctx)
	// An error of one network must not keep the pod in the others.
	for _, n := range slices.Backward(a.Networks) {
		if e := m.del(ctx, &a, n, lock.File()); e != nil {
			err = errors.Join(err, fmt.Errorf("network %q: %w", n.Name, e))
		}
	}
	return err
}

// detachUnknown disconnects a pod whose attachment is not known from the networks that libcni has
// cached for it: those that it was connected to completely. It removes the ports that we have mapped.
func (m *Manager) detachUnknown(ctx context.Context, uid string, lock record.Lock) error {
	c := libcni.NewCNIConfigWithCacheDir(m.o.CNIBinDirs, m.files.results(), &pluginExec{inherit: []*os.File{lock.File()}, limit: m.pluginLimit})
	cached, err := c.GetCachedAttachments(uid)
	if err != nil {
		return fmt.Errorf("looking for its networks: %w", err)
	}
	var errs []error
	for _, n := range slices.Backward(cached) {
		list, err := libcni.ConfListFromBytes(n.Config)
		if err == nil {
			if !namespaces.Alive(namespaces.Pin{Kind: namespaces.Net, Path: n.NetNS}) {
				n.NetNS = ""
			}
			err = c.DelNetworkList(ctx, list, &libcni.RuntimeConf{
				ContainerID: uid, NetNS: n.NetNS, IfName: n.IfName, Args: n.CniArgs, CapabilityArgs: n.CapabilityArgs,
			})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("network %q: %w", n.Network, err))
		}
	}
	if nft, err := findNFT(m.o.Path); err == nil {
		errs = append(errs, portRules{Lock: lock.File(), Bridge: BridgeName(m.o.StateDir), UID: uid}.remove(ctx, nft))
	}
	return errors.Join(errs...)
}

// collectOnce runs collect before the first pod with a network in this process.
func (m *Manager) collectOnce(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.collected {
		return nil
	}
	if err := m.collect(ctx); err != nil {
		return err
	}
	m.collected = true
	return nil
}

// collect releases the addresses of pods whose network namespace is gone: the machine was
// rebooted, or somebody unmounted it.
func (m *Manager) collect(ctx context.Context) error {
	attached, err := m.attached()
	if err != nil {
		return err
	}
	for _, r := range attached {
		if r.OtherVersion() {
			continue // its namespace may be elsewhere
		}
		// The attachment is recorded after the namespace is pinned, and removed before it.
		if namespaces.Alive(m.files.pin(string(r.Pod.UID), namespaces.Net)) {
			if err := m.renewLeases(r); err != nil {
				return err
			}
			continue
		}
		lock, ok, err := m.o.Records.TryLock(r.Pod.UID)
		if err != nil {
			return err
		}
		if !ok {
			continue // somebody is working on the pod, and does the same
		}
		err = m.Remove(ctx, r.Pod, lock)
		lock.Release()
		if err != nil {
			m.o.Log.Warn("could not release the addresses of a pod whose network namespace is gone", "uid", r.Pod.UID, "error", err)
			continue
		}
		m.o.Log.Info("released the addresses of a pod whose network namespace is gone", "uid", r.Pod.UID)
	}
	return nil
}

// bridgeConf returns the configuration of our own network, and makes sure that its bridge and
// rules exist. Host ports that no plugin can map move from what is asked of CNI to the
// attachment.
func (m *Manager) bridgeConf(ctx context.Context, a *attachment, asked *capabilities) (*libcni.NetworkConfigList, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.keepBridge(ctx); err != nil {
		return nil, err
	}
	if err := m.bridge.CheckPorts(asked.Ports); err != nil {
		return nil, err
	}
	if m.bridge.OwnPorts && len(asked.Ports) > 0 {
		a.Bridge, a.Ports, asked.Ports = m.bridge.Name, asked.Ports, nil
	}
	return m.bridge.Conf(asked.Names())
}

// Cleanup removes our own network from the machine when no pod is attached any more: its
// bridge, its rules, and the portmap plugin's chains if they exist only for us. While pods are
// attached it does nothing.
func (m *Manager) Cleanup(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.collect(ctx); err != nil {
		return err
	}
	lock, err := lockHost(ctx)
	if err != nil {
		return err
	}
	defer lock.Release()
	attached, err := m.attached()
	if err != nil || len(attached) > 0 {
		return err
	}
	m.bridge = nil
	if err := m.removeBridge(ctx, lock); err != nil {
		return err
	}
	for _, dir := range []string{m.files.leases(), m.files.results()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing network state: %w", err)
		}
	}
	// Our directories too, unless they contain something else.
	for _, dir := range []string{m.files.pods(), m.o.StateDir, m.o.DataDir} {
		_ = os.Remove(dir)
	}
	return nil
}

// attachment is the part of a pod's record about the networks that CNI has connected it to, or
// was about to.
type attachment struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	NetNS     string `json:"netns"` // empty when it is gone: then the plugins release what is outside of it
	// Networks are those that the pod joins, first the one that gives it its addresses.
	Networks []podNetwork `json:"networks"`
	// Ports are host ports that we map to the pod without a CNI plugin, by rules of the bridge.
	Ports  []portMapping `json:"ports,omitempty"`
	Bridge string        `json:"bridge,omitempty"`
}

// update changes the pod's record.
func (m *Manager) update(pod *v1.Pod, change func(*record.Pod)) error {
	_, err := m.o.Records.Update(pod.UID, func(r *record.Pod) error {
		if r.Pod == nil {
			r.Pod = pod
		}
		change(r)
		return nil
	})
	return err
}

// attached returns the records of the pods that are attached to networks.
func (m *Manager) attached() ([]*record.Pod, error) {
	all, err := m.o.Records.List()
	if err != nil {
		return nil, fmt.Errorf("listing network attachments: %w", err)
	}
	var attached []*record.Pod
	for _, r := range all {
		if len(r.Attachment) > 0 {
			attached = append(attached, r)
		}
	}
	return attached, nil
}

// layout says where the files of this package are: a reboot removes those in state.
type layout struct{ state, data string }

func (l layout) pods() string           { return filepath.Join(l.state, "pods") }
func (l layout) pins(uid string) string { return filepath.Join(l.pods(), uid) }
func (l layout) leases() string         { return filepath.Join(l.state, "ipam") }
func (l layout) results() string        { return filepath.Join(l.data, "cni") }
func (l layout) pin(uid string, k namespaces.Kind) namespaces.Pin {
	return namespaces.Pin{Kind: k, Path: filepath.Join(l.pins(uid), string(k))}
}
