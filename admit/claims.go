package admit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Claim is what a PersistentVolumeClaim demands of the node and of the pods that use it.
type Claim struct {
	// OnePod says that only one pod at a time may use it (ReadWriteOncePod).
	OnePod bool
	// Nodes selects the nodes that can use its volume; nil for all.
	Nodes *v1.NodeSelector
	// NFS says that its volume is an NFS share.
	NFS bool
}

// What the scheduler says of claims (pkg/scheduler/framework/plugins/volumerestrictions,
// volumebinding).
const (
	messageOnePod   = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
	messageAffinity = "node(s) didn't match PersistentVolume's node affinity"
)

// claimsOf returns the names of the pod's claims.
func claimsOf(pod *v1.Pod) []types.NamespacedName {
	var names []types.NamespacedName
	for i := range pod.Spec.Volumes {
		if name, ok := claimOf(pod, &pod.Spec.Volumes[i]); ok {
			names = append(names, name)
		}
	}
	return names
}

// claimOf returns the name of the volume's claim. That of an ephemeral volume consists of the
// names of pod and volume.
func claimOf(pod *v1.Pod, v *v1.Volume) (types.NamespacedName, bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return types.NamespacedName{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}, true
	case v.Ephemeral != nil:
		return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name + "-" + v.Name}, true
	}
	return types.NamespacedName{}, false
}

// missingMountHelper returns a reason for each NFS volume of the pod, where nothing on this
// machine can mount it.
func (o Options) missingMountHelper(pod *v1.Pod) []Reason {
	if !o.NoNFS {
		return nil
	}
	var reasons []Reason
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name, claimed := claimOf(pod, v)
		if v.NFS != nil || claimed && o.Claims[name].NFS {
			reasons = append(reasons, Reason{"MissingMountHelper", fmt.Sprintf("Volume %q is mounted by NFS, and mount.nfs is not installed: install nfs-common", v.Name)})
		}
	}
	return reasons
}

// claimTable holds the pods that use each claim that only one pod may use.
type claimTable map[types.NamespacedName][]*entry

func (t claimTable) add(e *entry) {
	for _, name := range e.claims {
		t[name] = append(t[name], e)
	}
}

func (t claimTable) remove(e *entry) {
	for _, name := range e.claims {
		t[name] = slices.DeleteFunc(t[name], func(by *entry) bool { return by == e })
	}
}

// conflicts returns the pods that use one of the pod's claims.
func (t claimTable) conflicts(e *entry) []holder {
	var found []holder
	for _, name := range e.claims {
		for _, by := range t[name] {
			found = append(found, holder{by: by})
		}
	}
	return found
}

// onePodClaims returns those of the pod's claims that only one pod may use.
func (o Options) onePodClaims(pod *v1.Pod) []types.NamespacedName {
	return slices.DeleteFunc(claimsOf(pod), func(name types.NamespacedName) bool { return !o.Claims[name].OnePod })
}

// volumeElsewhere says whether a volume of the pod cannot be used on the node.
func (p *planner) volumeElsewhere(pod *v1.Pod) bool {
	return slices.ContainsFunc(claimsOf(pod), func(name types.NamespacedName) bool {
		nodes := p.o.Claims[name].Nodes
		if nodes == nil {
			return false
		}
		selector, err := nodeaffinity.NewNodeSelector(nodes)
		return err != nil || !selector.Match(p.node)
	})
}
