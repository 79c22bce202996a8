package node

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/manifests"
)

// claims tells the admission what the claims of the input and their volumes ask for.
func claims(set *manifests.Set) map[types.NamespacedName]admit.Claim {
	all := map[types.NamespacedName]admit.Claim{}
	for _, c := range set.Claims() {
		one := admit.Claim{OnePod: slices.Contains(c.Spec.AccessModes, v1.ReadWriteOncePod)}
		if pv, ok := set.PersistentVolume(c.Spec.VolumeName); ok {
			one.NFS = pv.Spec.NFS != nil
			if pv.Spec.NodeAffinity != nil {
				one.Nodes = pv.Spec.NodeAffinity.Required
			}
		}
		if one.OnePod || one.Nodes != nil || one.NFS {
			all[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = one
		}
	}
	return all
}
