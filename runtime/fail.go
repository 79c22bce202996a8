package runtime

import (
	"context"
	"fmt"

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
	return p.fail(ctx, st, pod, reason, message)
}

// fail is Fail for who has locked the pod.
func (p *Pods) fail(ctx context.Context, st *podState, pod *v1.Pod, reason, message string) error {
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
	st.remember(kept.Status)
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

// recorded returns what the pod's record says of its status: when it was first started,
// by whatever process, and whether it was ended by Fail. It is zero for a pod that was
// never started.
func (st *podState) recorded(s store, pod *v1.Pod) v1.PodStatus {
	st.memo.Lock()
	defer st.memo.Unlock()
	if st.kept.StartTime == nil {
		if kept, err := s.load(pod.UID); err == nil {
			st.kept = kept.Status
		}
	}
	return st.kept
}

// remember replaces what recorded returns.
func (st *podState) remember(status v1.PodStatus) {
	st.memo.Lock()
	defer st.memo.Unlock()
	st.kept = status
}
