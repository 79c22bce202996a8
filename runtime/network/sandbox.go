// Package network gives each pod its namespaces and its network: net, ipc and uts
// namespaces pinned to files, so that no process has to hold them, and addresses and
// host ports by CNI.
package network

import (
	"encoding/json"

	"github.com/runonce/runonce/runtime/network/cni"
)

// Sandbox is what the containers of a pod share. A namespace path is empty when the pod
// uses the host's.
type Sandbox struct {
	NetNS string `json:"netns,omitempty"`
	IPCNS string `json:"ipcns,omitempty"`
	UTSNS string `json:"utsns,omitempty"`
	// UserNS is the user namespace that owns the others, in a pod with hostUsers: false.
	// Its users and groups from 0 on are the host's from FirstID on, userns.Length of them.
	UserNS  string `json:"userns,omitempty"`
	FirstID uint32 `json:"firstID,omitempty"`
	// Hostname is the name that the containers see.
	Hostname string `json:"hostname"`
	// Domain is that of a pod with a subdomain.
	Domain string `json:"domain,omitempty"`
	// IPs are the pod's addresses, the primary one first. A pod on the host network has
	// the host's.
	IPs []string `json:"ips,omitempty"`
	// Networks are those that CNI connected the pod to, that of its addresses first.
	Networks []cni.Status `json:"networks,omitempty"`
}

// Annotations returns the network status as Multus notes it on a pod, nothing for one that
// has joined no network besides its first: there its status tells all.
func (s Sandbox) Annotations() map[string]string {
	if len(s.Networks) < 2 {
		return nil
	}
	text, err := json.MarshalIndent(s.Networks, "", "    ")
	if err != nil {
		return nil // text and lists of it always have a form in JSON
	}
	return map[string]string{cni.StatusAnnotation: string(text)}
}
