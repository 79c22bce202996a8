// Package emptydir decides how emptyDir volumes are made.
package emptydir

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"github.com/runonce/runonce/internal/failure"
)

// DefaultMode lets every user of the pod write (pkg/volume/emptydir).
const DefaultMode = 0o777

// Mode translates the permission bits of the API, of which 01000 is the sticky bit.
func Mode(bits *int32) fs.FileMode {
	if bits == nil {
		return DefaultMode
	}
	mode := fs.FileMode(*bits) & fs.ModePerm
	if *bits&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// MemoryOptions bounds a tmpfs by the smallest of sizeLimit, the pod's memory limit and
// the node's memory.
func MemoryOptions(pod *v1.Pod, s *v1.EmptyDirVolumeSource, allocatable v1.ResourceList) string {
	limits := podresource.PodLimits(pod, podresource.PodResourcesOptions{})
	var sizes []int64
	for _, q := range []*resource.Quantity{s.SizeLimit, allocatable.Memory(), memoryLimit(pod, limits)} {
		if q != nil && q.Sign() > 0 {
			sizes = append(sizes, q.Value())
		}
	}
	if len(sizes) == 0 {
		return ""
	}
	return fmt.Sprintf("size=%d", slices.Min(sizes))
}

// memoryLimit returns the pod's memory limit, nil unless each of its containers, or the
// pod as a whole, has one.
func memoryLimit(pod *v1.Pod, limits v1.ResourceList) *resource.Quantity {
	if !podresource.IsPodLevelLimitsSet(pod) {
		for i := range pod.Spec.Containers {
			if pod.Spec.Containers[i].Resources.Limits.Memory().IsZero() {
				return nil
			}
		}
	}
	return limits.Memory()
}

// HugePageSize returns the mount option for the page size that the medium names, else for
// the one that the pod's containers ask for.
func HugePageSize(pod *v1.Pod, medium v1.StorageMedium) (string, error) {
	if size, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		return "pagesize=" + strings.TrimSuffix(size, "i"), nil
	}
	var sizes []string
	for name := range podresource.PodRequests(pod, podresource.PodResourcesOptions{}) {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			sizes = append(sizes, size)
		}
	}
	switch len(sizes) {
	case 0:
		return "", failure.FailedMountf("hugePages storage requested, but there is no resource request for huge pages")
	case 1:
		return "pagesize=" + strings.TrimSuffix(sizes[0], "i"), nil
	}
	return "", failure.FailedMountf("medium HugePages: the containers ask for several page sizes, so that the medium must name one")
}
