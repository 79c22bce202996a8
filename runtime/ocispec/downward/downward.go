// Package downward resolves the references of the downward API: fields of the pod and
// resources of its containers, as text.
package downward

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	podresource "k8s.io/component-helpers/resource"

	"github.com/runonce/runonce/internal/podspec"
)

// Source is what the references are about.
type Source struct {
	Pod     *v1.Pod
	PodIPs  []string // the primary one first
	HostIPs []string
	// NodeName stands in for an empty spec.nodeName.
	NodeName string
	// Allocatable stands in for limits that are not set.
	Allocatable v1.ResourceList
}

// Field returns the value of a field path in an environment variable
// (kubelet podFieldSelectorRuntimeValue).
func (s Source) Field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		if s.Pod.Spec.NodeName != "" {
			return s.Pod.Spec.NodeName, nil
		}
		return s.NodeName, nil
	case "spec.serviceAccountName":
		// What the API server's admission fills in (plugin ServiceAccount).
		return cmp.Or(s.Pod.Spec.ServiceAccountName, "default"), nil
	case "status.hostIP":
		return first(s.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(s.HostIPs, ","), nil
	case "status.podIP":
		return first(s.PodIPs), nil
	case "status.podIPs":
		return strings.Join(s.PodIPs, ","), nil
	}
	return s.Metadata(path)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// Metadata returns the value of a metadata field path, the only ones that volumes may
// name (pkg/fieldpath.ExtractFieldPathAsString).
func (s Source) Metadata(path string) (string, error) {
	switch path {
	case "metadata.name":
		return s.Pod.Name, nil
	case "metadata.namespace":
		return s.Pod.Namespace, nil
	case "metadata.uid":
		return string(s.Pod.UID), nil
	case "metadata.labels":
		return formatMap(s.Pod.Labels), nil
	case "metadata.annotations":
		return formatMap(s.Pod.Annotations), nil
	}
	field, key, ok := strings.Cut(path, "['")
	if key, closed := strings.CutSuffix(key, "']"); ok && closed {
		return s.entry(path, field, key)
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

// entry returns one label or annotation; an absent one is empty.
func (s Source) entry(path, field, key string) (string, error) {
	var from map[string]string
	name := key
	switch field {
	case "metadata.labels":
		from = s.Pod.Labels
	case "metadata.annotations":
		from, name = s.Pod.Annotations, strings.ToLower(key)
	default:
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	if errs := validation.IsQualifiedName(name); len(errs) > 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", path, strings.Join(errs, ";"))
	}
	return from[key], nil
}

// formatMap writes one key="quoted value" line for each entry, sorted by key.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%v=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// Resource returns a container's request or limit in units of the divisor, rounded up
// (pkg/api/v1/resource.ExtractContainerResourceValue). The container is the one that the
// selector names, else c. A limit for cpu, memory or ephemeral-storage that is not set is
// the pod's, else what the node can give.
func (s Source) Resource(sel *v1.ResourceFieldSelector, c *v1.Container) (string, error) {
	c, err := s.container(sel.ContainerName, c)
	if err != nil {
		return "", err
	}
	kind, name, _ := strings.Cut(sel.Resource, ".")
	q, err := s.quantity(c, kind, v1.ResourceName(name))
	if err != nil {
		return "", err
	}
	divisor := sel.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	over, under := q.Value(), divisor.Value()
	if v1.ResourceName(name) == v1.ResourceCPU {
		over, under = q.MilliValue(), divisor.MilliValue()
	}
	if under == 0 {
		return "", fmt.Errorf("resource %s: divisor %s is too small", sel.Resource, divisor.String())
	}
	return strconv.FormatInt(int64(math.Ceil(float64(over)/float64(under))), 10), nil
}

func (s Source) container(name string, otherwise *v1.Container) (*v1.Container, error) {
	if name == "" && otherwise != nil {
		return otherwise, nil
	}
	if c := podspec.Container(s.Pod, name); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %s not found", name)
}

func (s Source) quantity(c *v1.Container, kind string, name v1.ResourceName) (resource.Quantity, error) {
	plain := name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
	if !plain && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
		return resource.Quantity{}, fmt.Errorf("unsupported container resource: %s.%s", kind, name)
	}
	switch kind {
	case "requests":
		return c.Resources.Requests[name], nil
	case "limits":
		if q := c.Resources.Limits[name]; !q.IsZero() || !plain {
			return q, nil
		}
		return s.defaultLimit(name), nil
	}
	return resource.Quantity{}, fmt.Errorf("unsupported container resource: %s.%s", kind, name)
}

// defaultLimit is what bounds a container that sets no limit of its own.
func (s Source) defaultLimit(name v1.ResourceName) resource.Quantity {
	if podresource.IsPodLevelResourcesSet(s.Pod) {
		if q := s.Pod.Spec.Resources.Limits[name]; !q.IsZero() {
			return q
		}
	}
	return s.Allocatable[name]
}
