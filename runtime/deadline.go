package runtime

import (
	"slices"
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

// overdue reports whether the pod was active past its deadline. One that had ended before,
// well or not, was not, and one that ended well because it was stopped was.
func (st *podState) overdue(s store, pod *v1.Pod, status v1.PodStatus) bool {
	left, limited := st.deadline(s, pod)
	if !limited || left > 0 {
		return false
	}
	if status.Phase != v1.PodSucceeded && status.Phase != v1.PodFailed {
		return true
	}
	deadline := time.Now().Add(left)
	return slices.ContainsFunc(status.ContainerStatuses, func(cs v1.ContainerStatus) bool {
		return cs.State.Terminated != nil && !cs.State.Terminated.FinishedAt.Time.Before(deadline)
	})
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
