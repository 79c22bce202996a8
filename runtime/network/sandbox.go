// Package network gives each pod its namespaces and its network: net, ipc and uts
// namespaces pinned to files, so that no process has to hold them, and addresses and
// host ports by CNI.
package network

import "github.com/runonce/runonce/runtime/network/cni"

// Sandbox is what the containers of a pod share. A namespace path is empty when the pod
// uses the host's.
type Sandbox struct {
	NetNS string `json:"netns,omitempty"`
	IPCNS string `json:"ipcns,omitempty"`
	UTSNS string `json:"utsns,omitempty"`
	// Hostname is the name that the containers see.
	Hostname string `json:"hostname"`
	// IPs are the pod's addresses, the primary one first. A pod on the host network has
	// the host's.
	IPs []string `json:"ips,omitempty"`
	// Networks are those that CNI connected the pod to, that of its addresses first.
	Networks []cni.Status `json:"networks,omitempty"`
}
