package network

import (
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/network/cni"
	"github.com/runonce/runonce/runtime/network/namespaces"
	"github.com/runonce/runonce/runtime/record"
)

// attachment is the part of a pod's record about the networks that CNI has connected it to, or
// was about to.
type attachment struct {
	cni.Pod
	// Networks are those that the pod joins, first the one that gives it its addresses.
	Networks []cni.Network `json:"networks"`
	// Ports are host ports that we map to the pod without a CNI plugin, by rules of the bridge.
	Ports  []cni.PortMapping `json:"ports,omitempty"`
	Bridge string            `json:"bridge,omitempty"`
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
