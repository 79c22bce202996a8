package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/runonce/runonce/internal/podspec"
)

// Devices are those that the machine's specifications of the Container Device Interface
// described when they were opened (https://github.com/cncf-tags/container-device-interface, SPEC.md). For
// Kubernetes a kind of devices, vendor.com/class, is an extended resource. They are safe for concurrent use.
type Devices struct{ cache *cdi.Cache }

// DeviceDirs returns the default directories of specifications, which are containerd's.
func DeviceDirs() []string { return slices.Clone(cdi.DefaultSpecDirs) }

// OpenDevices reads the specifications in the directories, of which later ones take precedence.
// Invalid ones are left out and returned as errors.
func OpenDevices(dirs []string) (d *Devices, invalid []error, err error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, nil, fmt.Errorf("reading device specifications: %w", err)
	}
	found := cache.GetErrors()
	for _, path := range slices.Sorted(maps.Keys(found)) {
		invalid = append(invalid, fmt.Errorf("device specification %s: %w", path, errors.Join(found[path]...)))
	}
	return &Devices{cache}, invalid, nil
}

// Kinds returns the sorted qualified names of the devices of each kind. A device with several
// names is listed once, and the name for all devices is left out. Nil has none.
func (d *Devices) Kinds() map[string][]string {
	kinds := map[string][]string{}
	if d == nil {
		return kinds
	}
	seen := map[string]bool{}
	for _, name := range d.cache.ListDevices() {
		vendor, class, short := parser.ParseDevice(name)
		kind := vendor + "/" + class
		key := kind + "\n" + d.identity(name)
		if short == "all" || seen[key] {
			continue
		}
		seen[key] = true
		kinds[kind] = append(kinds[kind], name)
	}
	return kinds
}

// identity distinguishes devices by their nodes, or by their names when they have none.
func (d *Devices) identity(name string) string {
	device := d.cache.GetDevice(name)
	if device == nil || len(device.ContainerEdits.DeviceNodes) == 0 {
		return "name " + name
	}
	nodes := make([]string, 0, len(device.ContainerEdits.DeviceNodes))
	for _, n := range device.ContainerEdits.DeviceNodes {
		nodes = append(nodes, n.Path+" "+n.HostPath)
	}
	slices.Sort(nodes)
	return strings.Join(nodes, "\n")
}

// Inject adds the devices to the spec of a container: their nodes, mounts, variables and
// hooks. A device without a specification is an error.
func (d *Devices) Inject(spec *specs.Spec, devices []string) error {
	if len(devices) == 0 {
		return nil
	}
	if d == nil {
		return fmt.Errorf("adding the devices %s: there are no device specifications", strings.Join(devices, ", "))
	}
	if _, err := d.cache.InjectDevices(spec, devices...); err != nil {
		return fmt.Errorf("adding the devices %s: %w", strings.Join(devices, ", "), err)
	}
	return nil
}

// Requests reports whether the pod requests devices of the kinds.
func Requests(pod *v1.Pod, kinds map[string][]string) bool {
	for kind := range kinds {
		for _, c := range podspec.Containers(pod) {
			if deviceCount(c, kind) > 0 {
				return true
			}
		}
	}
	return false
}

// Allocate chooses devices for the pod's containers, of those that are not in use, in the
// order of their names, and returns the names by container. Containers and sidecars do not
// share devices; an init container uses those of containers that start after it, so that the
// pod needs as many as it requests (component-helpers/resource.PodRequests; the kubelet's
// device manager reuses them in the same way).
func Allocate(pod *v1.Pod, kinds map[string][]string, inUse map[string]bool) (map[string][]string, error) {
	a := map[string][]string{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		free := slices.DeleteFunc(slices.Clone(kinds[kind]), func(name string) bool { return inUse[name] })
		used := 0 // of the free ones, by containers that keep running
		for i, c := range podspec.Containers(pod) {
			n := deviceCount(c, kind)
			if used+n > len(free) {
				return nil, fmt.Errorf("container %q requests %d devices of kind %s, but %d are available", c.Name, n, kind, len(free)-used)
			}
			if n > 0 {
				a[c.Name] = append(a[c.Name], free[used:used+n]...)
			}
			if i >= len(pod.Spec.InitContainers) || podspec.IsSidecar(c) {
				used += n
			}
		}
	}
	return a, nil
}

func deviceCount(c *v1.Container, kind string) int {
	q := c.Resources.Requests[v1.ResourceName(kind)]
	return int(max(0, q.Value()))
}
