package cdi

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Requested reports whether the pod requests devices of the kinds.
func Requested(pod *v1.Pod, kinds map[string][]string) bool {
	for kind := range kinds {
		for _, c := range podspec.Containers(pod) {
			if count(c, kind) > 0 {
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
			n := count(c, kind)
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

func count(c *v1.Container, kind string) int {
	q := c.Resources.Requests[v1.ResourceName(kind)]
	return int(max(0, q.Value()))
}
