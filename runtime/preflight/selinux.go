package preflight

import (
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/ocispec/profile"
)

// WantsSELinux says whether a container of the pod has SELinux options.
func WantsSELinux(pod *v1.Pod) bool {
	for _, c := range podspec.Containers(pod) {
		if profile.SELinux(pod, c) != nil {
			return true
		}
	}
	return false
}
