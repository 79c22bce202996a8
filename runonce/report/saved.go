package report

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/runonce"
)

// Saved is a report with what its JSON does not have, so that it can be written again in every format.
type Saved struct {
	Report Report `json:"report"`
	// Pods are those of the results.
	Pods []SavedPod `json:"pods,omitempty"`
	// Faults are the warnings of the manifests, and the errors of those that were skipped.
	Faults decode.Diagnostics `json:"faults,omitempty"`
}

// SavedPod is what a result does not say of its pod.
type SavedPod struct {
	Containers int                     `json:"containers"` // of its spec
	Labels     map[string]string       `json:"labels,omitempty"`
	Owners     []metav1.OwnerReference `json:"owners,omitempty"`
	Kills      []string                `json:"kills,omitempty"` // see killLines
}

// Save returns the report as it can be saved.
func (r Report) Save(faults decode.Diagnostics) Saved {
	s := Saved{Report: r, Faults: faults}
	for i := range r.Results {
		s.Pods = append(s.Pods, r.Results[i].pod)
	}
	return s
}

// Restore returns the report as it was.
func (s Saved) Restore() Report {
	r := s.Report
	r.Results = slices.Clone(r.Results)
	for i := range r.Results {
		if i < len(s.Pods) {
			r.Results[i].pod = s.Pods[i]
		}
	}
	return r
}

// NeverStarted returns the pods of the report that were not started: what is known of them is what the run has decided
// at that time.
func (r Report) NeverStarted(decided time.Time) []PodState {
	var states []PodState
	for i := range r.Results {
		res := &r.Results[i]
		if res.started() {
			continue
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: res.Namespace, Name: res.Name, UID: types.UID(res.UID), Labels: res.pod.Labels, OwnerReferences: res.pod.Owners}, Status: res.Status}
		pod.Annotations = map[string]string{podspec.AnnotationSource: res.Source}
		states = append(states, PodState{
			Pod: pod, Outcome: res.Outcome, Reason: res.Reason, Message: messageOf(res.Reason, res.Message, res.PreemptedBy), DecidedAt: decided, NeverStarted: true,
		})
	}
	return states
}

// started says whether anything of the pod was started, in this run or before it.
func (r *Result) started() bool {
	return r.Attempts > 0 || r.EarlierRun || r.Outcome.AtGoal() || r.Outcome == runonce.Removed ||
		r.Status.StartTime != nil || len(podspec.Statuses(r.Status)) > 0
}
