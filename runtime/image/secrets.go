package image

import (
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// PullSecrets returns the pod's pull secrets that came with the pods; an absent one was warned
// about when the pod was read (getPullSecretsForPod of pkg/kubelet).
func PullSecrets(objects podspec.Objects, pod *v1.Pod) []*v1.Secret {
	var all []*v1.Secret
	for _, ref := range pod.Spec.ImagePullSecrets {
		if s, ok := objects.Secret(pod.Namespace, ref.Name); ok {
			all = append(all, s)
		}
	}
	return all
}
