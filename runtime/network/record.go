package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/network/cni"
	"github.com/runonce/runonce/runtime/network/netns"
)

// attachment is the record of a pod that CNI was, or was about to be, asked to connect.
// It is written before the first plugin runs and removed after the last has undone its
// work, in the data directory: so that a crash or a reboot in between leaks nothing.
type attachment struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	NetNS     string `json:"netns"`
	// Networks are those that the pod joins, the one of its addresses first.
	Networks []cni.Network `json:"networks"`
	// Ports are the host's that we lead to the pod ourselves, by the rules of the bridge.
	Ports  []cni.PortMapping `json:"ports,omitempty"`
	Bridge string            `json:"bridge,omitempty"`
}

// pod is what CNI is told of it.
func (a *attachment) pod() cni.Pod {
	return cni.Pod{UID: a.UID, Namespace: a.Namespace, Name: a.Name, NetNS: a.NetNS}
}

// layout says where the files of this room are.
type layout struct{ state, data string }

func (l layout) pods() string                 { return filepath.Join(l.state, "pods") }
func (l layout) pod(uid string) string        { return filepath.Join(l.pods(), uid) }
func (l layout) pins(uid string) string       { return filepath.Join(l.pod(uid), "ns") }
func (l layout) sandbox(uid string) string    { return filepath.Join(l.pod(uid), "network.json") }
func (l layout) leases() string               { return filepath.Join(l.state, "ipam") }
func (l layout) attachments() string          { return filepath.Join(l.data, "network") }
func (l layout) attachment(uid string) string { return filepath.Join(l.attachments(), uid+".json") }
func (l layout) results() string              { return filepath.Join(l.data, "cni") }
func (l layout) pin(uid string, k netns.Kind) netns.Pin {
	return netns.Pin{Kind: k, Path: filepath.Join(l.pins(uid), k.String())}
}

// absent reports whether there is no trace of the pod.
func (l layout) absent(uid string) bool {
	for _, path := range []string{l.pod(uid), l.attachment(uid)} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// writeJSON replaces the file with v's JSON in one step.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return fmt.Errorf("making directory: %w", err)
	}
	return atomicfile.Write(path, data, 0o600)
}

func readSandbox(path string) (engine.Sandbox, error) {
	var sb engine.Sandbox
	data, err := os.ReadFile(path)
	if err != nil {
		return sb, fmt.Errorf("reading sandbox: %w", err)
	}
	if err := json.Unmarshal(data, &sb); err != nil {
		// A file torn by a power cut is as good as none: the sandbox is made anew.
		return sb, fmt.Errorf("reading sandbox %s: %w: %w", path, err, fs.ErrNotExist)
	}
	return sb, nil
}

// readAttachment returns an error that wraps fs.ErrNotExist when there is no record. One
// torn by a power cut is as good as none: what it described is gone with the power.
func readAttachment(path string) (*attachment, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the record of a network attachment: %w", err)
	}
	a := &attachment{}
	if err := json.Unmarshal(data, a); err != nil {
		return nil, fmt.Errorf("reading %s: %w: %w", path, err, fs.ErrNotExist)
	}
	return a, nil
}

// attachedUIDs returns the UIDs of the pods that have a record, in order.
func (l layout) attachedUIDs() ([]string, error) {
	entries, err := os.ReadDir(l.attachments())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing network attachments: %w", err)
	}
	uids := make([]string, 0, len(entries))
	for _, e := range entries {
		if uid, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}
