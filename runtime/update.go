package runtime

import (
	"context"
	"errors"
	"io/fs"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Update puts another definition of the pod, of the same UID, on record. The next Sync with
// it replaces the containers whose image changed. What was decided at the first
// start stays: when that was, and the devices. A pod that was never started is left alone.
func (p *Pods) Update(_ context.Context, pod *v1.Pod) error {
	st := p.of(pod.UID)
	st.mu.Lock()
	defer st.mu.Unlock()
	old, err := p.store.load(pod.UID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	kept := pod.DeepCopy()
	kept.Status = old.Status
	if chosen, ok := old.Annotations[podspec.AnnotationDevices]; ok {
		if kept.Annotations == nil {
			kept.Annotations = map[string]string{}
		}
		kept.Annotations[podspec.AnnotationDevices] = chosen
	}
	return p.store.save(kept)
}
