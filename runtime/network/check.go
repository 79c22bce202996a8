package network

import (
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/network/bridge"
	"github.com/runonce/runonce/runtime/network/cni"
)

// Check returns an error that says what to install when the machine lacks a program that
// connects the pods to their networks. Pods on the host's network need none, and pods that are
// connected already need nothing more. It changes nothing.
func (m *Manager) Check(pods []*v1.Pod) error {
	var waiting []*v1.Pod
	for _, pod := range pods {
		if pod.Spec.HostNetwork {
			continue
		}
		if _, err := m.get(pod); err != nil {
			waiting = append(waiting, pod)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	if err := m.checkPrograms(waiting); err != nil {
		others := ""
		if n := len(waiting) - 1; n > 0 {
			others = fmt.Sprintf(" and %d more", n)
		}
		return fmt.Errorf("network of pod %q%s: %w", waiting[0].Namespace+"/"+waiting[0].Name, others, err)
	}
	return nil
}

// checkPrograms checks that the programs are there that connect the pods.
func (m *Manager) checkPrograms(pods []*v1.Pod) error {
	var plugins []string
	list, err := m.configured()
	ours := errors.Is(err, fs.ErrNotExist)
	switch {
	case ours:
		plugins, err = bridge.Plugins(m.o.Path)
	case err == nil:
		plugins = cni.PluginsOf(list)
	}
	if err != nil {
		return err
	}
	for _, pod := range pods {
		// What is wrong with one pod is its own error, when it starts.
		if asked, err := cni.CapabilitiesOf(pod); err == nil && ours && asked.Bandwidth != nil {
			plugins = append(plugins, bridge.BandwidthPlugin)
		}
		selections, err := cni.Selections(pod)
		if err != nil {
			continue
		}
		for _, s := range selections {
			if list, err := cni.Named(m.o.CNIConfDir, s.Name); err == nil {
				plugins = append(plugins, cni.PluginsOf(list)...)
			}
		}
	}
	return cni.CheckPlugins(plugins, m.o.CNIBinDirs)
}
