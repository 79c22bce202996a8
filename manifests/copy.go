package manifests

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Copy returns a set with pods of its own, which may be changed while those of this one run. It shares what they refer
// to.
func (s *Set) Copy() *Set {
	own := *s
	own.Pods, own.Invalid = slices.Clone(s.Pods), slices.Clone(s.Invalid)
	own.places = maps.Clone(s.places)
	maps.DeleteFunc(own.places, func(o metav1.Object, _ place) bool {
		_, isPod := o.(*v1.Pod)
		return isPod
	})
	for i, pod := range s.Pods {
		own.Pods[i] = pod.DeepCopy()
		if at, ok := s.places[pod]; ok {
			own.places[own.Pods[i]] = at
		}
	}
	return &own
}

// Defines says whether all that a pod of an earlier input refers to has the same content in this one.
func (s *Set) Defines(pod *v1.Pod) bool {
	refs := references(pod)
	if len(refs) == 0 {
		return true
	}
	own := *pod
	own.Spec.EphemeralContainers = nil
	for _, users := range []*bool{pod.Spec.HostUsers, nil} { // which a plan may have set
		own.Spec.HostUsers = users
		if uid, err := s.uid(&own, refs); err == nil && uid == pod.UID {
			return true
		}
	}
	return false
}
