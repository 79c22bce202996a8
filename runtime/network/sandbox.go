// Package network gives each pod its namespaces and its network: net, ipc and uts
// namespaces pinned to files, so that no process has to hold them, and addresses and
// host ports by CNI.
package network

import (
	"encoding/json"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/network/cni"
	"github.com/runonce/runonce/runtime/network/netns"
)

// annotations returns the network status as Multus writes it on a pod, nothing for one that
// has joined no network besides its first: there its status tells all.
func annotations(networks []cni.Status) map[string]string {
	if len(networks) < 2 {
		return nil
	}
	text, err := json.MarshalIndent(networks, "", "    ")
	if err != nil {
		return nil // text and lists of it always have a form in JSON
	}
	return map[string]string{cni.StatusAnnotation: string(text)}
}

// pins returns the sandbox's namespaces.
func pins(s engine.Sandbox) []netns.Pin {
	return []netns.Pin{
		{Kind: netns.Net, Path: s.NetNS},
		{Kind: netns.IPC, Path: s.IPCNS},
		{Kind: netns.UTS, Path: s.UTSNS},
		{Kind: netns.User, Path: s.UserNS},
	}
}
