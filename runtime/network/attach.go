package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/containernetworking/cni/libcni"

	"github.com/runonce/runonce/runtime/network/bridge"
	"github.com/runonce/runonce/runtime/network/fault"
	"github.com/runonce/runonce/runtime/network/hostnet"
	"github.com/runonce/runonce/runtime/network/netns"
)

// plan decides which network the pod joins and checks that the machine has what it takes.
func (m *Manager) plan(ctx context.Context, pod *v1.Pod) (*attachment, error) {
	if err := m.collectOnce(ctx); err != nil {
		return nil, err
	}
	asked, err := capabilitiesOf(pod)
	if err != nil {
		return nil, err
	}
	list, err := foundConf(m.o.CNIConfDir)
	if errors.Is(err, fs.ErrNotExist) {
		list, err = m.ownConf(ctx, asked.names())
	}
	if err != nil {
		return nil, err
	}
	for _, name := range asked.names() {
		if !supports(list, name) {
			return nil, fault.Permanentf("no plugin of network %q in %s has the capability %s, which the pod's %s needs",
				list.Name, m.o.CNIConfDir, name, asksFor(name))
		}
	}
	if err := checkPlugins(pluginsOf(list), m.o.CNIBinDirs); err != nil {
		return nil, err
	}
	uid := string(pod.UID)
	return &attachment{
		UID:       uid,
		Namespace: pod.Namespace,
		Name:      pod.Name,
		NetNS:     m.files.pin(uid, netns.Net).Path,
		Network:   list.Name,
		Config:    list.Bytes,
		Asked:     asked,
	}, nil
}

// attach connects the pod. The record comes first: with it, Remove undoes whatever the
// plugins did, also in another process.
func (m *Manager) attach(ctx context.Context, a *attachment, lock podLock) ([]string, error) {
	if err := writeJSON(m.files.attachment(a.UID), a); err != nil {
		return nil, err
	}
	return m.plugins(lock).add(ctx, a)
}

// plugins returns the CNI plugins for work on the pod whose lock is given.
func (m *Manager) plugins(lock podLock) plugins {
	return plugins{dirs: m.o.CNIBinDirs, cache: m.files.results(), lock: lock}
}

// detach disconnects the pod with the given UID, by the record of its attachment. Without
// a record there is nothing to undo.
func (m *Manager) detach(ctx context.Context, uid string, lock podLock) error {
	record := m.files.attachment(uid)
	a, err := readAttachment(record)
	if errors.Is(err, fs.ErrNotExist) {
		return removeState(record)
	}
	if err != nil {
		return err
	}
	path := a.NetNS
	if !netns.Alive(netns.Pin{Kind: netns.Net, Path: path}) {
		path = ""
	}
	if err := m.plugins(lock).del(ctx, a, path); err != nil {
		return err
	}
	return removeState(record)
}

// collectOnce releases, at the first network pod of this process, what pods hold whose
// namespace is gone: the machine was rebooted, or somebody unmounted it.
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

func (m *Manager) collect(ctx context.Context) error {
	uids, err := m.files.attachedUIDs()
	if err != nil {
		return err
	}
	for _, uid := range uids {
		// A record is written after its namespace is pinned and removed before.
		if netns.Alive(m.files.pin(uid, netns.Net)) {
			continue
		}
		lock, ok, err := m.files.tryLock(uid)
		if err != nil {
			return err
		}
		if !ok {
			continue // somebody is at work on it, and does the same
		}
		err = m.detach(ctx, uid, lock)
		lock.release()
		if err != nil {
			m.o.Log.Warn("cannot release the addresses of a pod that is gone", "uid", uid, "error", err)
			continue
		}
		m.o.Log.Info("released the addresses of a pod that is gone", "uid", uid)
	}
	return nil
}

// ownConf returns the configuration of the network that we bring along, whose bridge and
// rules are ready then. The plugins are looked for before anything is made.
func (m *Manager) ownConf(ctx context.Context, asked []string) (*libcni.NetworkConfigList, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bridge == nil {
		if err := checkPlugins(bridge.Plugins(), m.o.CNIBinDirs); err != nil {
			return nil, err
		}
		b, err := bridge.Open(ctx, m.o.StateDir, m.files.leases())
		if err != nil {
			return nil, err
		}
		m.bridge = &b
	}
	conf, err := m.bridge.Conf(asked)
	if err != nil {
		return nil, err
	}
	list, err := libcni.ConfListFromBytes(conf)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of network %q: %w", m.bridge.Name, err)
	}
	return list, nil
}

// Cleanup removes what the network that we bring along leaves on the machine when no pod
// is attached to any more: its bridge, its rules, and the port mapping plugin's empty
// chains if they would not be there without us. With pods attached it does nothing.
func (m *Manager) Cleanup(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.collect(ctx); err != nil {
		return err
	}
	lock, err := hostnet.TakeLock(ctx)
	if err != nil {
		return err
	}
	defer lock.Release()
	uids, err := m.files.attachedUIDs()
	if err != nil || len(uids) > 0 {
		return err
	}
	m.bridge = nil
	if err := bridge.Remove(ctx, m.o.StateDir, lock, m.o.Log); err != nil {
		return err
	}
	for _, dir := range []string{m.files.leases(), m.files.attachments(), m.files.results()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing network state: %w", err)
		}
	}
	// Our directories too, unless they hold something else.
	for _, dir := range []string{m.files.pods(), m.o.StateDir, m.o.DataDir} {
		_ = os.Remove(dir)
	}
	return nil
}
