package ocispec

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

// fieldValue returns the value of a fieldRef in an environment variable
// (kubelet podFieldSelectorRuntimeValue).
func (c Context) fieldValue(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return cmp.Or(c.Pod.Spec.NodeName, c.Node.Name), nil
	case "spec.serviceAccountName":
		// The default is set by an admission plugin of the API server (ServiceAccount).
		return cmp.Or(c.Pod.Spec.ServiceAccountName, "default"), nil
	case "status.hostIP":
		return first(c.Node.IPs), nil
	case "status.hostIPs":
		return strings.Join(c.Node.IPs, ","), nil
	case "status.podIP":
		return first(c.Sandbox.IPs), nil
	case "status.podIPs":
		return strings.Join(c.Sandbox.IPs, ","), nil
	}
	return MetadataField(c.Pod, path)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// MetadataField returns the value of a fieldRef to the pod's metadata, the only fields that
// volumes may refer to (pkg/fieldpath.ExtractFieldPathAsString).
func MetadataField(pod *v1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	}
	field, key, ok := strings.Cut(path, "['")
	key, closed := strings.CutSuffix(key, "']")
	if !ok || !closed {
		return "", fmt.Errorf("unsupported fieldPath: %s", path)
	}
	values, name := pod.Labels, key
	switch field {
	case "metadata.labels":
	case "metadata.annotations":
		values, name = pod.Annotations, strings.ToLower(key)
	default:
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	if errs := validation.IsQualifiedName(name); len(errs) > 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", path, strings.Join(errs, ";"))
	}
	return values[key], nil
}

// formatMap writes one key="quoted value" line for each entry, sorted by key.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%v=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// ResourceField returns the value of a resourceFieldRef: a container's request or limit in
// units of the divisor, rounded up (pkg/api/v1/resource.ExtractContainerResourceValue). The
// container is the one that the selector names, else own, which may be nil. A limit of cpu,
// memory or ephemeral-storage that is not set defaults to the pod's, else to what is
// allocatable on the node.
func (c Context) ResourceField(sel *v1.ResourceFieldSelector, own *v1.Container) (string, error) {
	container := own
	if sel.ContainerName != "" || own == nil {
		container = podspec.Container(c.Pod, sel.ContainerName)
	}
	if container == nil {
		return "", fmt.Errorf("container %s not found", sel.ContainerName)
	}
	q, err := c.quantity(container, sel.Resource)
	if err != nil {
		return "", err
	}
	divisor := sel.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, unit := q.Value(), divisor.Value()
	if strings.HasSuffix(sel.Resource, ".cpu") {
		value, unit = q.MilliValue(), divisor.MilliValue()
	}
	if unit == 0 {
		return "", fmt.Errorf("resource %s: divisor %s is too small", sel.Resource, divisor.String())
	}
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(unit))), 10), nil
}

// quantity returns a resource such as limits.cpu of the container.
func (c Context) quantity(container *v1.Container, path string) (resource.Quantity, error) {
	kind, suffix, _ := strings.Cut(path, ".")
	name := v1.ResourceName(suffix)
	hasDefault := name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
	known := hasDefault || strings.HasPrefix(suffix, v1.ResourceHugePagesPrefix)
	switch {
	case known && kind == "requests":
		return container.Resources.Requests[name], nil
	case known && kind == "limits":
		if q := container.Resources.Limits[name]; !q.IsZero() || !hasDefault {
			return q, nil
		}
		if podresource.IsPodLevelResourcesSet(c.Pod) {
			if q := c.Pod.Spec.Resources.Limits[name]; !q.IsZero() {
				return q, nil
			}
		}
		return c.Node.Allocatable[name], nil
	}
	return resource.Quantity{}, fmt.Errorf("unsupported container resource: %s.%s", kind, name)
}
