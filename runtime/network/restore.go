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
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
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
		m.o.Log.Warn("could not check the network of a running pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
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

// restorePods gives connected pods back what somebody has taken from them: their place on the bridge
// if that was deleted, and their host ports if the rules are gone, as after a reload of the
// machine's firewall that deletes all rules.
func (m *Manager) restorePods(ctx context.Context, b podBridge, lock hostLock, all []firewall) error {
	attached, err := m.attached()
	if err != nil {
		return err
	}
	var pods []connected
	for _, r := range attached {
		a, ok := m.onBridge(r)
		if _, err := m.get(r.Pod); !ok || err != nil {
			continue
		}
		pods = append(pods, connected{r, a})
		if err := m.reconnect(ctx, b, &a, lock); err != nil {
			m.o.Log.Warn("could not reconnect a pod after its bridge was recreated", "pod", a.Namespace+"/"+a.Name, "error", err)
		}
	}
	for i, fw := range all {
		own := slices.DeleteFunc(slices.Clone(pods), func(p connected) bool { return !fw.keeps(p.attachment) })
		if len(own) == 0 {
			continue
		}
		if i > 0 { // it was the preferred one when these pods started
			if err := fw.open(ctx, b, lock); err != nil {
				return err
			}
		}
		if err := m.restoreMapped(ctx, b, lock, fw, own); err != nil {
			return err
		}
	}
	return nil
}

// connected is a pod that is connected to the bridge.
type connected struct {
	record *record.Pod
	attachment
}

// restoreMapped maps the host ports again of those pods of a firewall whose rules are gone.
func (m *Manager) restoreMapped(ctx context.Context, b podBridge, lock hostLock, fw firewall, pods []connected) error {
	// The plugin did that for the first pod, and somebody may have undone it.
	if err := routeLocalnet(b); err != nil {
		return err
	}
	mapped, err := fw.mapped(ctx, b, lock)
	if err != nil {
		return fmt.Errorf("looking for the host ports of pods: %w", err)
	}
	for _, p := range pods {
		if mapped(p.UID) {
			continue
		}
		pod := p.Namespace + "/" + p.Name
		if err := m.restorePorts(ctx, p.record, &p.attachment, lock); err != nil {
			m.o.Log.Warn("could not restore the host ports of a pod after their rules were removed", "pod", pod, "error", err)
			continue
		}
		m.o.Log.Info("restored the host ports of a pod after their rules were removed", "pod", pod)
	}
	return nil
}

// reconnect makes the pod's interface a port of the bridge if it is not.
func (m *Manager) reconnect(ctx context.Context, b podBridge, a *attachment, lock hostLock) error {
	bridge, err := netlink.LinkByName(b.Name)
	if err != nil {
		return fmt.Errorf("looking for bridge %q: %w", b.Name, err)
	}
	result := &types100.Result{}
	err = m.runPlugins(ctx, a, a.Networks[0], lock.file, func(_ context.Context, c libcni.CNI, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
		raw, err := c.GetNetworkListCachedResult(list, rt)
		if err == nil && raw != nil {
			result, err = types100.NewResultFromResult(raw)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, i := range result.Interfaces {
		if i.Sandbox != "" {
			continue
		}
		link, err := netlink.LinkByName(i.Name)
		if err != nil || link.Type() != "veth" || link.Attrs().MasterIndex == bridge.Attrs().Index {
			continue
		}
		if err := errors.Join(netlink.LinkSetMaster(link, bridge), netlink.LinkSetHairpin(link, true)); err != nil {
			return fmt.Errorf("connecting %s to bridge %q: %w", i.Name, b.Name, err)
		}
	}
	return nil
}

func (m *Manager) restorePorts(ctx context.Context, r *record.Pod, a *attachment, lock hostLock) error {
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
