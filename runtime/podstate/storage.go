package podstate

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/runonce/runonce/internal/podspec"
)

// systemCritical is the lowest priority of a critical pod, which is not evicted
// (scheduling.SystemCriticalPriority).
const systemCritical = 2_000_000_000

// StorageUsage is the local ephemeral storage that a pod uses, in bytes.
type StorageUsage struct {
	// Volumes is the disk usage of the emptyDir volumes, by name.
	Volumes map[string]int64
	// Containers is that of the containers' writable layers and logs, by name.
	Containers map[string]int64
}

// LimitsStorage reports whether the pod has a limit of local storage that it could exceed.
func LimitsStorage(pod *v1.Pod) bool {
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical {
		return false
	}
	limits := func(c *v1.Container) bool { return !c.Resources.Limits.StorageEphemeral().IsZero() }
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return storageLimit(&v) != nil }) ||
		slices.ContainsFunc(podspec.Containers(pod), limits)
}

// StorageExceeded returns the kubelet's message about the limit of local storage that the pod
// exceeds, "" for none
// (eviction manager, localStorageEviction).
func StorageExceeded(pod *v1.Pod, u StorageUsage) string {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if limit := storageLimit(v); limit != nil && limit.CmpInt64(u.Volumes[v.Name]) < 0 {
			return fmt.Sprintf(podspec.MessageEmptyDirLimit, v.Name, limit.String())
		}
	}
	limit, ok := podresource.PodLimits(pod, podresource.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	if ok && limit.CmpInt64(u.sum()) < 0 {
		return fmt.Sprintf(podspec.MessagePodLimit, limit.String())
	}
	for _, c := range podspec.LongRunning(pod) {
		if limit := c.Resources.Limits.StorageEphemeral(); !limit.IsZero() && limit.CmpInt64(u.Containers[c.Name]) < 0 {
			return fmt.Sprintf(podspec.MessageContainerLimit, c.Name, limit.String())
		}
	}
	return ""
}

func (u StorageUsage) sum() int64 {
	sum := int64(0)
	for _, n := range u.Volumes {
		sum += n
	}
	for _, n := range u.Containers {
		sum += n
	}
	return sum
}

// storageLimit returns the size limit of an emptyDir on disk; the kernel limits a tmpfs.
func storageLimit(v *v1.Volume) *resource.Quantity {
	if e := v.EmptyDir; e == nil || e.Medium != v1.StorageMediumDefault || e.SizeLimit == nil || e.SizeLimit.Sign() <= 0 {
		return nil
	}
	return v.EmptyDir.SizeLimit
}
