package volume

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/ephemeralstorage"
)

// Usage returns the disk usage of the pod's emptyDir volumes in bytes, by name.
func (m *Manager) Usage(ctx context.Context, pod *v1.Pod) (map[string]int64, error) {
	used := map[string]int64{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !ephemeralstorage.OnDisk(v) {
			continue
		}
		n, err := ephemeralstorage.DiskUsage(ctx, m.path(pod, v))
		if err != nil {
			return nil, fmt.Errorf("measuring volume %q: %w", v.Name, err)
		}
		used[v.Name] = n
	}
	return used, nil
}
