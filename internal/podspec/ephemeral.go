package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Ephemeral returns the ephemeral containers of the pod, as containers.
func Ephemeral(pod *v1.Pod) []*v1.Container {
	all := make([]*v1.Container, 0, len(pod.Spec.EphemeralContainers))
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

// AllContainers returns the init containers, the containers, then the ephemeral containers.
func AllContainers(pod *v1.Pod) []*v1.Container { return append(Containers(pod), Ephemeral(pod)...) }

// AllStatuses returns the statuses of AllContainers.
func AllStatuses(st v1.PodStatus) []v1.ContainerStatus {
	return append(Statuses(st), st.EphemeralContainerStatuses...)
}

// AnyRuns says whether a container of any kind runs.
func AnyRuns(st v1.PodStatus) bool { return slices.ContainsFunc(AllStatuses(st), IsRunning) }

// IsEphemeral says whether the name is that of an ephemeral container.
func IsEphemeral(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Name == name })
}

// ProcessTarget returns the name of the container in whose process namespace an ephemeral container runs, "" for
// others.
func ProcessTarget(pod *v1.Pod, name string) string {
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == name {
			return c.TargetContainerName
		}
	}
	return ""
}

// MergeEphemeral returns the ephemeral containers of the pod and those of the other that it does not have. They are
// never changed or removed (ValidatePodEphemeralContainersUpdate of pkg/apis/core/validation).
func MergeEphemeral(pod, other *v1.Pod) []v1.EphemeralContainer {
	all := slices.Clip(pod.Spec.EphemeralContainers)
	for _, c := range other.Spec.EphemeralContainers {
		if !IsEphemeral(pod, c.Name) {
			all = append(all, c)
		}
	}
	return all
}
