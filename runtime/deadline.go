package runtime

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// deadline returns how long the pod may still be active, if its activeDeadlineSeconds
// limits that (pkg/kubelet/active_deadline.go).
func (st *podState) deadline(s store, pod *v1.Pod) (left time.Duration, limited bool) {
	if pod.Spec.ActiveDeadlineSeconds == nil {
		return 0, false
	}
	limit := time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second
	started := st.recorded(s, pod).StartTime
	if started == nil {
		return limit, true
	}
	return time.Until(started.Add(limit)), true
}

// wakeAt calls f once the time has passed, however often it is asked to.
func (st *podState) wakeAt(after time.Duration, f func()) {
	st.memo.Lock()
	defer st.memo.Unlock()
	if !st.timed {
		st.timed = true
		time.AfterFunc(after, f)
	}
}
