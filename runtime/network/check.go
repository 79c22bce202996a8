package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	v1 "k8s.io/api/core/v1"
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

// CheckMachine returns what connects pods that ask for nothing special, and an error if that does not work on this machine.
// It changes nothing.
func (m *Manager) CheckMachine(ctx context.Context) (with string, err error) {
	if err := m.checkPrograms(nil); err != nil {
		return "", err
	}
	if list, err := m.configured(); err == nil {
		return fmt.Sprintf("the CNI network %q of %s", list.Name, m.o.CNIConfDir), nil
	}
	found, err := firewalls(m.o.Path)
	if err != nil {
		return "", err
	}
	_, subnet, _ := net.ParseCIDR("10.62.0.0/20") // any
	program, err := found[0].try(ctx, podBridge{Name: BridgeName(m.o.StateDir), Subnets: []*net.IPNet{subnet}})
	return "a bridge, with " + program, err
}

// checkPrograms checks that the programs are there that connect the pods.
func (m *Manager) checkPrograms(pods []*v1.Pod) error {
	var plugins []string
	list, err := m.configured()
	ours := errors.Is(err, fs.ErrNotExist)
	switch {
	case ours:
		plugins, err = bridgePlugins(m.o.Path)
	case err == nil:
		plugins = pluginsOf(list)
	}
	if err != nil {
		return err
	}
	for _, pod := range pods {
		// What is wrong with one pod is its own error, when it starts.
		if asked, err := capabilitiesOf(pod); err == nil && ours && asked.Bandwidth != nil {
			plugins = append(plugins, bandwidthPlugin)
		}
		selections, err := selectionsOf(pod)
		if err != nil {
			continue
		}
		for _, s := range selections {
			if list, err := namedNetwork(m.o.CNIConfDir, s.Name); err == nil {
				plugins = append(plugins, pluginsOf(list)...)
			}
		}
	}
	return checkPlugins(plugins, m.o.CNIBinDirs)
}
