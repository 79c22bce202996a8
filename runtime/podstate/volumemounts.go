package podstate

import (
	v1 "k8s.io/api/core/v1"
)

// volumeMounts are those of the container as its status tells them: the mode of a
// recursively read-only mount as it was resolved (pkg/kubelet/kubelet_pods.go,
// resolveRecursiveReadOnly). recursive says whether the machine has such mounts.
func volumeMounts(pod *v1.Pod, c *v1.Container, recursive func(*v1.Pod) bool) []v1.VolumeMountStatus {
	all := make([]v1.VolumeMountStatus, 0, len(c.VolumeMounts))
	for _, vm := range c.VolumeMounts {
		s := v1.VolumeMountStatus{Name: vm.Name, MountPath: vm.MountPath, ReadOnly: vm.ReadOnly}
		if vm.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			asked := vm.RecursiveReadOnly != nil && *vm.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled
			if asked && recursive != nil && recursive(pod) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		all = append(all, s)
	}
	return all
}
