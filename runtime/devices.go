package runtime

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/record"
)

// recordStart records when the pod was first started, before anything of it exists, and the
// devices that its containers will have, of which no other pod that has not ended has any.
func (p *Pods) recordStart(ctx context.Context, pod *v1.Pod) (*record.Pod, error) {
	if known, err := p.o.Records.Load(pod.UID); err == nil && !known.Started.IsZero() {
		return known, nil
	}
	if !requestsDevices(pod, p.o.Devices.Kinds()) {
		return p.o.Records.Update(pod.UID, func(r *record.Pod) error { r.Start(pod); return nil })
	}
	ended, err := p.endedPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("choosing devices: %w", err)
	}
	return p.o.Records.UpdateAmong(pod.UID, func(r *record.Pod, others []*record.Pod) (err error) {
		if r.Devices, err = allocateDevices(pod, p.o.Devices.Kinds(), devicesInUse(others, ended)); err != nil {
			return fmt.Errorf("choosing devices: %w", err)
		}
		r.Start(pod)
		return nil
	})
}

// endedPods returns which of the pods with devices have ended and so no longer need them.
func (p *Pods) endedPods(ctx context.Context) (map[types.UID]bool, error) {
	known, err := p.o.Records.List()
	if err != nil {
		return nil, err
	}
	ended := map[types.UID]bool{}
	for _, r := range known {
		if len(r.Devices) == 0 {
			continue
		}
		s, err := p.Status(ctx, r.Pod)
		if err != nil {
			return nil, err
		}
		ended[r.Pod.UID] = podspec.Inactive(s)
	}
	return ended, nil
}

func devicesInUse(pods []*record.Pod, ended map[types.UID]bool) map[string]bool {
	used := map[string]bool{}
	for _, r := range pods {
		for _, names := range r.Devices {
			for _, name := range names {
				used[name] = used[name] || !ended[r.Pod.UID]
			}
		}
	}
	return used
}
