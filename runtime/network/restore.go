package network

import (
	"cmp"
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

	"github.com/runonce/runonce/runtime/record"
)

// onBridge returns the attachment of a pod that is connected to our own network completely.
func (m *Manager) onBridge(r *record.Pod) (attachment, bool) {
	var a attachment
	known := json.Unmarshal(r.Attachment, &a) == nil && r.Sandbox != nil && len(a.Networks) > 0
	return a, known && a.Networks[0].Name == BridgeName(m.o.StateDir)
}

// keep makes sure that the bridge of a connected pod still has its rules, and the pod its ports.
func (m *Manager) keep(ctx context.Context, pod *v1.Pod) {
	r, err := m.o.Records.Load(pod.UID)
	if err == nil {
		if _, ok := m.onBridge(r); !ok {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		err = m.keepBridge(ctx)
	}
	if err != nil {
		m.o.Log.Warn("cannot make sure that a running pod has its network", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}

// renewLeases reserves the addresses of a pod in our own network again if the state directory was
// deleted, whose mounts outlive that: else the next pod would get one of them, too.
func (m *Manager) renewLeases(r *record.Pod) error {
	a, ok := m.onBridge(r)
	if !ok {
		return nil
	}
	dir := filepath.Join(m.files.leases(), a.Networks[0].Name)
	for _, ip := range r.Sandbox.IPs {
		lease := filepath.Join(dir, ip)
		if _, err := os.Lstat(lease); err == nil {
			continue
		}
		err := os.MkdirAll(dir, 0o755)
		if err == nil { // as the plugin host-local does
			err = os.WriteFile(lease, []byte(a.UID+"\r\n"+a.Networks[0].Interface), 0o600)
		}
		if err != nil {
			return fmt.Errorf("reserving the address %s of pod %s again: %w", ip, r.Pod.UID, err)
		}
		// The pod's lock may be held for long, also by this process.
		if _, err := m.get(r.Pod); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(lease) // it is being released
			break
		}
	}
	return nil
}

// restorePorts maps the host ports of connected pods again if their rules are gone, as after a
// reload of the machine's firewall that deletes all rules.
func (m *Manager) restorePorts(ctx context.Context, b podBridge, lock hostLock, fw firewall) error {
	attached, err := m.attached()
	if err != nil {
		return err
	}
	var mapped func(uid string) bool
	for _, r := range attached {
		a, ok := m.onBridge(r)
		if !ok || fw.ownPorts && len(a.Ports) == 0 || !fw.ownPorts && len(a.Networks[0].Asked.Ports) == 0 {
			continue
		}
		if mapped == nil {
			if mapped, err = fw.mapped(ctx, b, lock); err != nil {
				return fmt.Errorf("looking for the host ports of pods: %w", err)
			}
		}
		if mapped(a.UID) {
			continue
		}
		if err := m.restorePortsOf(ctx, r, &a, lock); err != nil {
			m.o.Log.Warn("cannot map the host ports of a pod again, whose rules are gone", "pod", a.Namespace+"/"+a.Name, "error", err)
			continue
		}
		m.o.Log.Info("mapped the host ports of a pod again, whose rules were gone", "pod", a.Namespace+"/"+a.Name)
	}
	return nil
}

func (m *Manager) restorePortsOf(ctx context.Context, r *record.Pod, a *attachment, lock hostLock) error {
	own := m.ports(a, r.Sandbox.IPs, lock.file)
	if err := errors.Join(own.Add(ctx), m.portPlugin(ctx, a, lock, "ADD")); err != nil {
		return err
	}
	// The pod's lock may be held for long, also by this process.
	if _, err := m.get(r.Pod); errors.Is(err, fs.ErrNotExist) { // it is being disconnected
		return errors.Join(own.Remove(ctx), m.portPlugin(ctx, a, lock, "DEL"))
	}
	return nil
}

// portPlugin calls the plugin that maps the pod's host ports, and no other one.
func (m *Manager) portPlugin(ctx context.Context, a *attachment, lock hostLock, command string) error {
	if len(a.Networks[0].Asked.Ports) == 0 {
		return nil
	}
	return m.runPlugins(ctx, a, a.Networks[0], lock.file, func(ctx context.Context, c libcni.CNI, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		result, err := c.GetNetworkListCachedResult(list, rt)
		if err != nil || result == nil {
			return fmt.Errorf("looking for the result of the pod's start: %w", cmp.Or(err, fs.ErrNotExist))
		}
		conf := list.Plugins[slices.IndexFunc(list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Capabilities[capabilityPorts] })]
		conf, err = libcni.InjectConf(conf, map[string]any{"name": list.Name, "cniVersion": list.CNIVersion, "prevResult": result})
		if err != nil {
			return err
		}
		if command == "DEL" {
			return c.DelNetwork(ctx, conf, rt)
		}
		_, err = c.AddNetwork(ctx, conf, rt)
		return err
	})
}
