package runtime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// Fail ends the pod as failed for good, whatever its restart policy says: its containers
// are stopped gracefully and not started again, and from now on its status is Failed with
// the given reason and message, in later processes too. What belongs to the pod stays,
// but for its namespaces, until Stop.
func (p *Pods) Fail(ctx context.Context, pod *v1.Pod, reason, message string) error {
	st := p.of(pod.UID)
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := p.record(ctx, pod); err != nil {
		return err
	}
	kept, err := p.store.load(pod.UID)
	if err != nil {
		return err
	}
	kept.Status.Phase, kept.Status.Reason, kept.Status.Message = v1.PodFailed, reason, message
	if err := p.store.save(kept); err != nil {
		return err
	}
	p.probes.keep(pod.UID, nil)
	_, s, err := p.snapshot(ctx, pod, st)
	if err != nil {
		return err
	}
	if err := p.clear(ctx, pod, s, actions{remove: s.stale, killPod: true}); err != nil {
		return fmt.Errorf("ending pod %q: %w", pod.Name, err)
	}
	return nil
}

// recorded returns what the pod's record says of its status: when it was first started, and
// whether it was ended by Fail, by whatever process. It is zero for a pod that was never
// started.
func (st *podState) recorded(s store, pod *v1.Pod) v1.PodStatus {
	st.memo.Lock()
	defer st.memo.Unlock()
	now, err := os.Stat(filepath.Join(s.path(pod.UID), recordFile))
	if err != nil || st.file != nil && os.SameFile(now, st.file) && now.ModTime().Equal(st.file.ModTime()) {
		return st.kept
	}
	if kept, err := s.load(pod.UID); err == nil {
		st.kept, st.file = kept.Status, now
	}
	return st.kept
}
