// Package cdi gives containers the devices that the machine's specifications of the
// Container Device Interface describe (https://github.com/cncf-tags/container-device-interface,
// SPEC.md). For Kubernetes a kind of devices, vendor.com/class, is an extended resource.
package cdi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
)

// Registry holds the devices that this machine had when the registry was opened. It is safe
// for concurrent use.
type Registry struct{ cache *cdi.Cache }

// Dirs returns the default directories of specifications, which are containerd's.
func Dirs() []string { return slices.Clone(cdi.DefaultSpecDirs) }

// Open reads the specifications in the directories, of which later ones take precedence.
// Invalid ones are left out and returned as errors.
func Open(dirs []string) (r *Registry, invalid []error, err error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, nil, fmt.Errorf("reading device specifications: %w", err)
	}
	found := cache.GetErrors()
	for _, path := range slices.Sorted(maps.Keys(found)) {
		invalid = append(invalid, fmt.Errorf("device specification %s: %w", path, errors.Join(found[path]...)))
	}
	return &Registry{cache}, invalid, nil
}

// Kinds returns the sorted qualified names of the devices of each kind. A device with several
// names is listed once, and the name for all devices is left out. A nil Registry has none.
func (r *Registry) Kinds() map[string][]string {
	kinds := map[string][]string{}
	if r == nil {
		return kinds
	}
	seen := map[string]bool{}
	for _, name := range r.cache.ListDevices() {
		vendor, class, short := parser.ParseDevice(name)
		kind := vendor + "/" + class
		key := kind + "\n" + r.identity(name)
		if short == "all" || seen[key] {
			continue
		}
		seen[key] = true
		kinds[kind] = append(kinds[kind], name)
	}
	return kinds
}

// identity distinguishes devices by their nodes, or by their names when they have none.
func (r *Registry) identity(name string) string {
	d := r.cache.GetDevice(name)
	if d == nil || len(d.ContainerEdits.DeviceNodes) == 0 {
		return "name " + name
	}
	nodes := make([]string, 0, len(d.ContainerEdits.DeviceNodes))
	for _, n := range d.ContainerEdits.DeviceNodes {
		nodes = append(nodes, n.Path+" "+n.HostPath)
	}
	slices.Sort(nodes)
	return strings.Join(nodes, "\n")
}

// Inject adds the devices to the spec of a container: their nodes, mounts, variables and
// hooks. A device that is not in the registry is an error.
func (r *Registry) Inject(spec *specs.Spec, devices []string) error {
	if len(devices) == 0 {
		return nil
	}
	if r == nil {
		return fmt.Errorf("adding the devices %s: there are no device specifications", strings.Join(devices, ", "))
	}
	if _, err := r.cache.InjectDevices(spec, devices...); err != nil {
		return fmt.Errorf("adding the devices %s: %w", strings.Join(devices, ", "), err)
	}
	return nil
}
