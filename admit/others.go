package admit

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/admit/nodeinfo"
)

// Other is something beside the pods that uses the machine: a pod, a container or a machine of another engine,
// or of runonce with another root.
type Other struct {
	Cgroup string            `json:"cgroup"` // its path
	Kind   string            `json:"kind"`   // pod, container or machine
	CPU    resource.Quantity `json:"cpu"`    // that it has reserved
	Memory resource.Quantity `json:"memory"` // that it has reserved, or uses if that is more
}

// Others returns what else uses the machine whose root is fsys, in order of the cgroups. Own says which cgroups are
// those of the pods that are planned.
func Others(fsys fs.FS, own func(path string) bool) ([]Other, error) {
	groups, err := nodeinfo.Groups(fsys, own)
	if err != nil {
		return nil, err
	}
	others := make([]Other, 0, len(groups))
	for _, g := range groups {
		others = append(others, Other{
			Cgroup: g.Path, Kind: g.Kind, CPU: *resource.NewMilliQuantity(g.MilliCPU, resource.DecimalSI),
			Memory: *resource.NewQuantity(roundUp(g.Memory), resource.BinarySI),
		})
	}
	return others, nil
}

// roundUp returns the bytes in whole Mi, because people read them.
func roundUp(bytes int64) int64 {
	const mi = 1 << 20
	return (bytes + mi - 1) / mi * mi
}

// reserved returns what pods do not get: what is reserved for the system, and what others have.
func (o NodeOptions) reserved() v1.ResourceList {
	list := o.Reserved.DeepCopy()
	if list == nil {
		list = v1.ResourceList{}
	}
	for _, other := range o.Others {
		for name, q := range other.amounts() {
			all := list[name]
			all.Add(q)
			list[name] = all
		}
	}
	return list
}

func (o Other) amounts() v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: o.CPU, v1.ResourceMemory: o.Memory}
}

// mostNamed is how many others a message names.
const mostNamed = 3

// named says which of the others have most of a resource, "" if none has any of it.
func named(others []Other, name v1.ResourceName) string {
	amountOf := func(o Other) resource.Quantity { return o.amounts()[name] }
	users := slices.DeleteFunc(slices.Clone(others), func(o Other) bool {
		q := amountOf(o)
		return q.Sign() <= 0
	})
	if len(users) == 0 {
		return ""
	}
	slices.SortStableFunc(users, func(a, b Other) int {
		q := amountOf(b)
		return cmp.Or(q.Cmp(amountOf(a)), strings.Compare(a.Cgroup, b.Cgroup))
	})
	var texts []string
	for _, o := range users[:min(len(users), mostNamed)] {
		q := amountOf(o)
		texts = append(texts, fmt.Sprintf("%s (%s)", o.Cgroup, q.String()))
	}
	if more := len(users) - mostNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return ", not counting what other containers have: " + strings.Join(texts, ", ")
}
