package admit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/admit/quantity"
)

// NodeFileOptions change a node that comes from a file.
type NodeFileOptions struct {
	Name     string            // instead of the file's, if not empty
	Labels   map[string]string // beside the file's; these win
	Capacity v1.ResourceList   // overrides the file's
	Reserved v1.ResourceList   // kept from pods, beside what the file keeps
	MaxPods  int64             // where the file says nothing; DefaultMaxPods when 0
	// SupplementalGroupsPolicy says, where the file has no features, that the runtime
	// can hold a pod to supplementalGroupsPolicy: Strict.
	SupplementalGroupsPolicy bool
}

// FromNodeFile returns a node as a Node read from a file describes it, which is not
// changed. What it says is allocatable is taken at its word; a resource that it only has
// as capacity is allocatable as the kubelet would make it.
func FromNodeFile(file *v1.Node, o NodeFileOptions) *v1.Node {
	node := file.DeepCopy()
	if o.Name != "" {
		node.Name = o.Name
	}
	labels := nodeLabels(node.Name, file.Labels)
	for key, value := range o.Labels {
		labels[key] = value
	}
	node.Labels = labels

	capacity := v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(maxPods(o.MaxPods), resource.DecimalSI)}
	override(capacity, file.Status.Allocatable)
	override(capacity, file.Status.Capacity)
	override(capacity, o.Capacity)
	list := allocatable(capacity, o.Reserved)
	for name, q := range file.Status.Allocatable {
		if _, ok := o.Capacity[name]; ok {
			continue
		}
		list[name] = quantity.Less(q, o.Reserved[name])
	}
	node.Status.Capacity, node.Status.Allocatable = capacity, list
	if node.Status.Features == nil {
		node.Status.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &o.SupplementalGroupsPolicy}
	}
	return node
}

// ParseResources reads a list like cpu=2,memory=4Gi. An empty one is no resources.
func ParseResources(list string) (v1.ResourceList, error) { return quantity.Parse(list) }
