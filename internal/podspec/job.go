package podspec

import batchv1 "k8s.io/api/batch/v1"

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
