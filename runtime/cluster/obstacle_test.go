package cluster

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/failure"
)

// TestWaitingError: what the kubelet cannot start is an error to retry, unless it never can.
func TestWaitingError(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason, message string
		want            string // reason of the error
		final           bool
	}{
		{reason: "ContainerCreating"},
		{reason: "PodInitializing"},
		{reason: "CrashLoopBackOff", message: "back-off 10s"},
		{reason: "ErrImagePull", message: "failed to pull: connection refused", want: "ErrImagePull"},
		{reason: "ImagePullBackOff", message: "Back-off pulling image: ErrImagePull: rpc error: code = NotFound desc = not found", want: "ErrImagePull", final: true},
		{reason: "ErrImagePull", message: "failed to resolve image: unexpected status from HEAD request to http://registry.example/v2/a/manifests/1: 503 Service Unavailable", want: "ErrImagePull"},
		{reason: "ErrImagePull", message: "failed to resolve image: unexpected status from HEAD request to http://registry.example/v2/a/manifests/1: 403 Forbidden", want: "ErrImagePull", final: true},
		{reason: "ErrImagePull", message: "pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials", want: "ErrImagePull", final: true},
		{reason: "ErrImagePull", message: "reading manifest 1 in registry.example/a: unauthorized: authentication required", want: "ErrImagePull", final: true},
		{reason: "InvalidImageName", message: "couldn't parse", want: "InvalidImageName", final: true},
		{reason: "ErrImageNeverPull", message: "not present", want: "ErrImageNeverPull", final: true},
		{reason: "CreateContainerConfigError", message: `secret "x" not found`, want: "CreateContainerConfigError"},
		{reason: "CreateContainerConfigError", message: "container has runAsNonRoot and image will run as root (pod: p, container: c)", want: "CreateContainerConfigError", final: true},
		{reason: "RunContainerError", message: "failed to create shim task: cannot allocate memory"},
		{reason: "RunContainerError", message: `OCI runtime create failed: runc create failed: unable to start container process: exec: "/x": stat /x: no such file or directory`, want: "RunContainerError", final: true},
	} {
		pod := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
			{Name: "runs", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
			{Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: test.reason, Message: test.message}}},
		}}}
		err := waitingError(pod)
		if (err != nil) != (test.want != "") || failure.Reason(err, "") != test.want || failure.IsPermanent(err) != test.final {
			t.Errorf("%s: %v", test.reason, err)
		}
	}
}

// TestLastWarning: a warning counts until the step that it is about has succeeded.
func TestLastWarning(t *testing.T) {
	t.Parallel()
	for all, want := range map[string]string{
		"":                            "",
		"Scheduled":                   "",
		"Scheduled !FailedMount":      "FailedMount",
		"!FailedScheduling Scheduled": "",
		"!FailedScheduling Scheduled TriggeredScaleUp":            "",
		"Scheduled !FailedMount Pulling":                          "",
		"Scheduled !FailedCreatePodSandBox SandboxChanged":        "FailedCreatePodSandBox",
		"Scheduled !FailedMount !FailedCreatePodSandBox":          "FailedCreatePodSandBox",
		"!FailedScheduling Scheduled !FailedMount Pulled !Failed": "Failed",
	} {
		var events []v1.Event
		for _, reason := range strings.Fields(all) {
			e := v1.Event{Type: v1.EventTypeNormal, Reason: reason}
			if after, ok := strings.CutPrefix(reason, "!"); ok {
				e = v1.Event{Type: v1.EventTypeWarning, Reason: after}
			}
			events = append(events, e)
		}
		if got, ok := lastWarning(events); got.Reason != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", all, got.Reason, ok)
		}
	}
}

// TestObserved: a pod that somebody else has deleted has failed, for the reason that the cluster
// gives, also if it exits with 0 when it is told to; one that had ended before keeps its end.
func TestObserved(t *testing.T) {
	t.Parallel()
	asked := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	disrupted := []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "PreemptionByScheduler", Message: "preempted"}}
	ended := func(at time.Time) []v1.ContainerStatus {
		return []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}}}}
	}
	before, after := ended(asked.Add(-time.Second)), ended(asked.Add(time.Second))
	for name, test := range map[string]struct {
		last    v1.PodStatus
		deleted bool
		gone    bool
		phase   v1.PodPhase
		reason  string
	}{
		"runs":                        {last: v1.PodStatus{Phase: v1.PodRunning}, phase: v1.PodRunning},
		"has ended":                   {last: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: after}, phase: v1.PodSucceeded},
		"is being deleted":            {last: v1.PodStatus{Phase: v1.PodRunning}, deleted: true, phase: v1.PodFailed, reason: "Deleted"},
		"gone":                        {last: v1.PodStatus{Phase: v1.PodRunning}, deleted: true, gone: true, phase: v1.PodFailed, reason: "Deleted"},
		"gone at once":                {last: v1.PodStatus{Phase: v1.PodRunning}, gone: true, phase: v1.PodFailed, reason: "Deleted"},
		"preempted":                   {last: v1.PodStatus{Phase: v1.PodRunning, Conditions: disrupted}, deleted: true, gone: true, phase: v1.PodFailed, reason: "PreemptionByScheduler"},
		"ended before its deletion":   {last: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: before}, deleted: true, gone: true, phase: v1.PodSucceeded},
		"ended by its deletion":       {last: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: after}, deleted: true, phase: v1.PodFailed, reason: "Deleted"},
		"ended well when preempted":   {last: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: after, Conditions: disrupted}, deleted: true, phase: v1.PodFailed, reason: "PreemptionByScheduler"},
		"ended badly by its deletion": {last: v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: after}, deleted: true, phase: v1.PodFailed, reason: "Deleted"},
	} {
		pod := &v1.Pod{Status: test.last}
		if test.deleted {
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(asked.Add(30*time.Second))), new(int64(30))
		}
		if got := observed(pod, test.gone); got.Phase != test.phase || got.Reason != test.reason {
			t.Errorf("%s: %s, %s", name, got.Phase, got.Reason)
		}
	}
}
