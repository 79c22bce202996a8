package network

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// The annotations of the Kubernetes Network Custom Resource Definition de facto standard,
// which comes from Multus: the networks that a pod joins besides its first one, and how it
// is connected to all of them.
const (
	networksAnnotation = "k8s.v1.cni.cncf.io/networks"
	statusAnnotation   = "k8s.v1.cni.cncf.io/network-status"
)

// selection is an additional network that a pod asks for.
type selection struct {
	Name string `json:"name"`
	// Namespace is that of the network's definition in a cluster. Here one directory has all
	// of them.
	Namespace string   `json:"namespace,omitempty"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	MAC       string   `json:"mac,omitempty"`
}

// String names the network as in a network status.
func (s selection) String() string {
	if s.Namespace == "" {
		return s.Name
	}
	return s.Namespace + "/" + s.Name
}

// selectionsOf reads the networks annotation: names or JSON. Interfaces without a name become
// net1, net2 and so on. Errors are permanent.
func selectionsOf(pod *v1.Pod) ([]selection, error) {
	text := strings.TrimSpace(pod.Annotations[networksAnnotation])
	if text == "" {
		return nil, nil
	}
	parse := parseNames
	if strings.HasPrefix(text, "[") {
		parse = parseJSON
	}
	all, err := parse(text)
	if err == nil {
		err = nameInterfaces(all)
	}
	if err != nil {
		return nil, failure.Permanentf("annotation %s: %w", networksAnnotation, err)
	}
	return all, nil
}

func parseJSON(text string) ([]selection, error) {
	var all []selection
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	if d.More() {
		return nil, fmt.Errorf("%q: there is text after the list", text)
	}
	return all, nil
}

// parseNames reads [NAMESPACE/]NAME[@INTERFACE], separated by commas.
func parseNames(text string) ([]selection, error) {
	var all []selection
	for item := range strings.SplitSeq(text, ",") {
		s := selection{}
		rest, iface, given := strings.Cut(strings.TrimSpace(item), "@")
		if given && iface == "" {
			return nil, fmt.Errorf("%q: no interface after the @", item)
		}
		s.Interface, s.Name = iface, rest
		if namespace, name, ok := strings.Cut(rest, "/"); ok {
			s.Namespace, s.Name = namespace, name
		}
		if strings.ContainsAny(s.Name, "/@") {
			return nil, fmt.Errorf("%q: must be [NAMESPACE/]NAME[@INTERFACE]", item)
		}
		all = append(all, s)
	}
	return all, nil
}

// nameInterfaces checks the names and sets those of interfaces that have none.
func nameInterfaces(all []selection) error {
	used := map[string]bool{podInterface: true, "lo": true}
	for i := range all {
		s := &all[i]
		if s.Name == "" {
			return fmt.Errorf("network %d has no name", i+1)
		}
		if s.Interface == "" {
			s.Interface = fmt.Sprintf("net%d", i+1)
		}
		if utils.ValidateInterfaceName(s.Interface) != nil {
			return fmt.Errorf("network %q: %q is not a valid interface name", s.Name, s.Interface)
		}
		if used[s.Interface] {
			return fmt.Errorf("network %q: interface %q is already used", s.Name, s.Interface)
		}
		used[s.Interface] = true
	}
	return nil
}

// networkStatus is one entry of the network status annotation.
type networkStatus struct {
	Name      string     `json:"name"`
	Interface string     `json:"interface"`
	IPs       []string   `json:"ips,omitempty"` // the pod's, the primary one first
	MAC       string     `json:"mac,omitempty"`
	Default   bool       `json:"default,omitempty"`
	DNS       *types.DNS `json:"dns,omitempty"`
}
