package runtime

import (
	"context"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/cdi"
	"github.com/runonce/runonce/runtime/record"
)

// recordStart records when the pod was first started, before anything of it exists, and the
// devices that its containers are going to have: none that a pod has that has not ended.
func (p *Pods) recordStart(ctx context.Context, pod *v1.Pod) (*record.Pod, error) {
	if known, err := p.o.Records.Load(pod.UID); err == nil && !known.Started.IsZero() {
		return known, nil
	}
	if !p.wantsDevices(pod) {
		return p.o.Records.Update(pod.UID, func(r *record.Pod) error { r.Start(pod); return nil })
	}
	ended, err := p.endedPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("choosing devices: %w", err)
	}
	return p.o.Records.UpdateAmong(pod.UID, func(r *record.Pod, others []*record.Pod) (err error) {
		if r.Devices, err = cdi.Allocate(pod, p.o.Devices.Kinds(), takenDevices(others, ended)); err != nil {
			return fmt.Errorf("choosing devices: %w", err)
		}
		r.Start(pod)
		return nil
	})
}

func (p *Pods) wantsDevices(pod *v1.Pod) bool {
	return p.o.Devices != nil && cdi.Requested(pod, p.o.Devices.Kinds())
}

// endedPods returns the pods with devices that have ended. They need them no longer.
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
		ended[r.Pod.UID] = s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed
	}
	return ended, nil
}

func takenDevices(pods []*record.Pod, ended map[types.UID]bool) map[string]bool {
	taken := map[string]bool{}
	for _, r := range pods {
		for _, names := range r.Devices {
			for _, name := range names {
				taken[name] = taken[name] || !ended[r.Pod.UID]
			}
		}
	}
	return taken
}

// inject gives the container the devices that the pod's record has for it.
func (p *Pods) inject(w *work, c *v1.Container, spec *specs.Spec) error {
	if !p.wantsDevices(w.pod) {
		return nil
	}
	return p.o.Devices.Inject(spec, w.record.Devices[c.Name])
}
