package podspec

import (
	"encoding/json"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// Job is the content of AnnotationJob. The names are those of the Job's spec.
type Job struct {
	Name                  string                    `json:"name"`
	Completions           *int32                    `json:"completions,omitempty"`
	Parallelism           *int32                    `json:"parallelism,omitempty"`
	ActiveDeadlineSeconds *int64                    `json:"activeDeadlineSeconds,omitempty"`
	PodFailurePolicy      *batchv1.PodFailurePolicy `json:"podFailurePolicy,omitempty"`
	BackoffLimit          *int32                    `json:"backoffLimit,omitempty"`
	BackoffLimitPerIndex  *int32                    `json:"backoffLimitPerIndex,omitempty"`
	MaxFailedIndexes      *int32                    `json:"maxFailedIndexes,omitempty"`
}

// JobOf returns the Job that the pod was made for, if it was.
func JobOf(pod *v1.Pod) (job Job, ok bool) {
	text, ok := pod.Annotations[AnnotationJob]
	return job, ok && json.Unmarshal([]byte(text), &job) == nil
}

// ReasonFailureIgnored is the reason of a failed pod whose Job is complete without it.
const ReasonFailureIgnored = "FailureIgnored"

// MessageJobDeadline is the message of pods that have failed by the deadline of their Job, in its controller's words.
const MessageJobDeadline = "Job was active longer than specified deadline"

// FailedWithJob says whether the pod was failed because of its Job, and not by itself.
func FailedWithJob(st v1.PodStatus) bool {
	switch st.Reason {
	case ReasonFailureIgnored, batchv1.JobReasonBackoffLimitExceeded, batchv1.JobReasonPodFailurePolicy,
		batchv1.JobReasonMaxFailedIndexesExceeded, batchv1.JobReasonFailedIndexes:
		return st.Phase == v1.PodFailed
	case batchv1.JobReasonDeadlineExceeded:
		return st.Phase == v1.PodFailed && st.Message == MessageJobDeadline
	}
	return false
}
