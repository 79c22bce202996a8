package admit

import (
	"cmp"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FromNodeFile returns the node that a document of kind Node describes, which is not changed.
// What the document calls allocatable stays so; a resource that it only has as capacity is
// allocatable as the kubelet would make it.
func FromNodeFile(file *v1.Node, o NodeOptions) *v1.Node {
	node := file.DeepCopy()
	node.Name = cmp.Or(o.Name, file.Name)
	node.Labels = nodeLabels(node.Name, file.Labels, o.Labels)

	capacity := v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(maxPods, resource.DecimalSI)}
	maps.Copy(capacity, node.Status.Allocatable)
	maps.Copy(capacity, node.Status.Capacity)
	maps.Copy(capacity, o.Capacity)
	reserved := o.reserved()
	list := allocatable(capacity, reserved)
	for name, q := range node.Status.Allocatable {
		if _, ok := o.Capacity[name]; !ok {
			list[name] = subtract(q, reserved[name])
		}
	}
	node.Status.Capacity, node.Status.Allocatable = capacity, list
	node.Status.Features = cmp.Or(node.Status.Features, runtimeFeatures())
	return node
}
