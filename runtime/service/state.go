package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"

	"github.com/runonce/runonce/internal/podspec"
)

// version is that of the format of the state.
const version = 1

// state is what is known of the Services of a root. It outlives a reboot, so that addresses stay.
type state struct {
	Version int `json:"version"`
	// Ranges are those from which cluster IPs are allocated, one for each family.
	Ranges []netip.Prefix `json:"ranges,omitempty"`
	// Services have their cluster IPs and node ports. They are sorted by namespace and name.
	Services []*v1.Service `json:"services,omitempty"`
	// External are the addresses of Services of type ExternalName, by namespace/name.
	External map[string][]netip.Addr `json:"external,omitempty"`
	// Rules says that the kernel may have rules of them.
	Rules bool `json:"rules,omitempty"`
}

const (
	stateFile = "services.json"
	lockFile  = "services.lock"
)

// load reads the state of a root; none is an empty one.
func load(root string) (state, error) {
	s := state{Version: version}
	path := filepath.Join(root, stateFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return s, fmt.Errorf("reading the Services in %s: %w", path, err)
	}
	if s.Version != version {
		return s, fmt.Errorf("reading the Services in %s: they are of another version of this program (format %d, not %d): remove them with that version (runonce down --all)",
			path, s.Version, version)
	}
	return s, nil
}

// save writes the state to disk. An empty one has no file.
func (s state) save(root string) error {
	path := filepath.Join(root, stateFile)
	if len(s.Services) == 0 && !s.Rules {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the Services: %w", err)
		}
		return nil
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = atomicfile.WriteOrdered(path, data, 0o600)
	}
	if err == nil {
		err = errors.Join(atomicfile.Sync(path), atomicfile.Sync(root))
	}
	if err != nil {
		return fmt.Errorf("recording the Services: %w", err)
	}
	return nil
}

func byName(a, b *v1.Service) int {
	return strings.Compare(podspec.NameOf(a).String(), podspec.NameOf(b).String())
}

// find returns the Service with the name, nil if there is none.
func (s state) find(name types.NamespacedName) *v1.Service {
	i := slices.IndexFunc(s.Services, func(svc *v1.Service) bool { return podspec.NameOf(svc) == name })
	if i < 0 {
		return nil
	}
	return s.Services[i]
}

// inNamespace reports whether the namespace has a Service with the name.
func (s state) inNamespace(namespace, name string) bool {
	return s.find(types.NamespacedName{Namespace: namespace, Name: name}) != nil
}

func isExternal(svc *v1.Service) bool { return svc.Spec.Type == v1.ServiceTypeExternalName }

// addresses returns the cluster IPs of a Service, none of a headless one.
func addresses(svc *v1.Service) []netip.Addr {
	all := make([]netip.Addr, 0, len(svc.Spec.ClusterIPs))
	for _, text := range svc.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			all = append(all, ip)
		}
	}
	return all
}

// ruled reports whether the Service needs rules in the kernel.
func ruled(svc *v1.Service) bool {
	return !isExternal(svc) && !podspec.IsHeadless(svc) && len(svc.Spec.Ports) > 0
}
