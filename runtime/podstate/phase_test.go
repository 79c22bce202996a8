package podstate

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
)

func TestPhase(t *testing.T) {
	t.Parallel()
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	tests := []struct {
		name    string
		policy  v1.RestartPolicy
		pod     string
		states  []string
		waiting string
		want    v1.PodPhase
	}{
		{name: "absent", policy: always, pod: ";a", want: v1.PodPending},
		{name: "running", policy: always, pod: ";a,b", states: []string{"a=running", "b=running"}, want: v1.PodRunning},
		{name: "one to come", policy: always, pod: ";a,b", states: []string{"a=running"}, want: v1.PodPending},
		{name: "init runs", policy: always, pod: "i;a", states: []string{"i=running"}, want: v1.PodPending},
		{name: "init failed", policy: never, pod: "i;a", states: []string{"i=exit1"}, want: v1.PodFailed},
		{name: "init OOM-killed, exit 0", policy: never, pod: "i;a", states: []string{"i=oom0"}, want: v1.PodFailed},
		{name: "init OOM-killed, exit 0, to be tried again", policy: onFailure, pod: "i;a", states: []string{"i=oom0"}, want: v1.PodPending},
		{name: "OOM-killed, exit 0", policy: never, pod: ";a", states: []string{"a=oom0"}, want: v1.PodSucceeded},
		{name: "init will be tried again", policy: onFailure, pod: "i;a", states: []string{"i=exit1"}, want: v1.PodPending},
		{name: "init waits to be tried again", policy: onFailure, pod: "i;a", states: []string{"i=exit1"}, waiting: "i", want: v1.PodPending},
		{name: "init record gone, pod runs", policy: always, pod: "i,j;a", states: []string{"j=exit0", "a=running"}, want: v1.PodRunning},
		{name: "crashed, in back-off", policy: always, pod: ";a", states: []string{"a=exit1"}, waiting: "a", want: v1.PodRunning},
		{name: "crashed, to be restarted", policy: always, pod: ";a", states: []string{"a=exit1"}, want: v1.PodRunning},
		{name: "succeeded", policy: never, pod: ";a,b", states: []string{"a=exit0", "b=exit0"}, want: v1.PodSucceeded},
		{name: "succeeded on failure", policy: onFailure, pod: ";a", states: []string{"a=exit0"}, want: v1.PodSucceeded},
		{name: "failed", policy: never, pod: ";a,b", states: []string{"a=exit0", "b=exit9"}, want: v1.PodFailed},
		{name: "one of two ended", policy: never, pod: ";a,b", states: []string{"a=exit9", "b=running"}, want: v1.PodRunning},
		{name: "to be tried again on failure", policy: onFailure, pod: ";a", states: []string{"a=exit9"}, want: v1.PodRunning},
		{name: "exit lost, never", policy: never, pod: ";a", states: []string{"a=unknown"}, want: v1.PodFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := aPod(tt.policy, tt.pod)
			o := observed(pod, true, tt.states...)
			if tt.waiting != "" {
				o.Record.Failures = map[string]record.Failure{tt.waiting: {Reason: ReasonCrashLoopBackOff, Attempt: 1}}
			}
			if got := Status(o, epoch).Phase; got != tt.want {
				t.Errorf("phase = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		policy  v1.RestartPolicy
		pod     string
		states  []string
		kind    v1.PodConditionType
		want    v1.ConditionStatus
		reason  string
		message string
	}{
		{
			name: "init OOM-killed, exit 0", policy: v1.RestartPolicyAlways, pod: "i,j;a", states: []string{"i=exit0", "j=oom0"},
			kind: v1.PodInitialized, want: v1.ConditionFalse, reason: "ContainersNotInitialized", message: "containers with incomplete status: [j]",
		},
		{
			name: "not initialized", policy: v1.RestartPolicyAlways, pod: "i,j;a", states: []string{"i=exit0", "j=running"},
			kind: v1.PodInitialized, want: v1.ConditionFalse, reason: "ContainersNotInitialized", message: "containers with incomplete status: [j]",
		},
		{
			name: "initialized", policy: v1.RestartPolicyAlways, pod: "i;a", states: []string{"i=exit0"},
			kind: v1.PodInitialized, want: v1.ConditionTrue,
		},
		{
			name: "not ready", policy: v1.RestartPolicyAlways, pod: ";a,b", states: []string{"a=running"},
			kind: v1.PodReady, want: v1.ConditionFalse, reason: "ContainersNotReady", message: "containers with unready status: [b]",
		},
		{
			name: "ready", policy: v1.RestartPolicyAlways, pod: ";a", states: []string{"a=running"},
			kind: v1.ContainersReady, want: v1.ConditionTrue,
		},
		{
			name: "completed", policy: v1.RestartPolicyNever, pod: ";a", states: []string{"a=exit0"},
			kind: v1.PodReady, want: v1.ConditionFalse, reason: "PodCompleted",
		},
		{
			name: "failed", policy: v1.RestartPolicyNever, pod: ";a", states: []string{"a=exit1"},
			kind: v1.ContainersReady, want: v1.ConditionFalse, reason: "PodFailed",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := aPod(tt.policy, tt.pod)
			s := Status(observed(pod, true, tt.states...), epoch)
			for _, c := range s.Conditions {
				if c.Type != tt.kind {
					continue
				}
				if c.Status != tt.want || c.Reason != tt.reason || c.Message != tt.message {
					t.Errorf("condition = %s %q %q, want %s %q %q", c.Status, c.Reason, c.Message, tt.want, tt.reason, tt.message)
				}
				return
			}
			t.Errorf("no condition %s", tt.kind)
		})
	}
}

func TestContainerStatus(t *testing.T) {
	t.Parallel()
	pod := aPod(v1.RestartPolicyAlways, ";a")
	last := &engine.Exit{ContainerID: "a-0", ExitCode: 3, StartedAt: epoch, FinishedAt: epoch}
	tests := []struct {
		name    string
		c       *engine.Container
		waiting *record.Failure
		check   func(s v1.ContainerStatus) bool
	}{
		{name: "to be created", check: func(s v1.ContainerStatus) bool { return s.State.Waiting.Reason == ReasonCreating }},
		{
			name: "why it waits", waiting: &record.Failure{Reason: failure.ReasonErrImagePull, Message: "no"},
			check: func(s v1.ContainerStatus) bool {
				return s.State.Waiting.Reason == failure.ReasonErrImagePull && s.State.Waiting.Message == "no"
			},
		},
		{
			name: "restarted", c: &engine.Container{ID: "a-1", Attempt: 1, State: engine.StateRunning, Last: last},
			check: func(s v1.ContainerStatus) bool {
				return s.RestartCount == 1 && s.Ready && *s.Started && s.LastTerminationState.Terminated.ExitCode == 3
			},
		},
		{
			name: "back-off shows the last end", c: &engine.Container{ID: "a-0", State: engine.StateExited, Exit: *last},
			waiting: &record.Failure{Reason: ReasonCrashLoopBackOff, Attempt: 1},
			check: func(s v1.ContainerStatus) bool {
				return s.State.Waiting.Reason == ReasonCrashLoopBackOff && s.LastTerminationState.Terminated.ExitCode == 3 && !s.Ready
			},
		},
		{
			name: "killed since its postStart hook failed", c: &engine.Container{ID: "a-0", State: engine.StateExited, Exit: *last},
			waiting: &record.Failure{Reason: ReasonPostStartHook},
			check: func(s v1.ContainerStatus) bool {
				return s.State.Waiting.Reason == ReasonPostStartHook && s.LastTerminationState.Terminated.ExitCode == 3
			},
		},
		{
			name: "started since it failed to", c: &engine.Container{ID: "a-0", State: engine.StateExited, Exit: *last},
			waiting: &record.Failure{Reason: failure.ReasonErrImagePull},
			check:   func(s v1.ContainerStatus) bool { return s.State.Terminated.ExitCode == 3 },
		},
		{
			name: "out of memory", c: &engine.Container{ID: "a-0", State: engine.StateExited, Exit: engine.Exit{ExitCode: 137, OOMKilled: true}},
			check: func(s v1.ContainerStatus) bool {
				return s.State.Terminated.Reason == "OOMKilled" && s.State.Terminated.ExitCode == 137
			},
		},
		{
			name: "exit lost", c: &engine.Container{ID: "a-0", State: engine.StateUnknown},
			check: func(s v1.ContainerStatus) bool {
				return s.State.Terminated.Reason == "ContainerStatusUnknown" && s.State.Terminated.ExitCode == 137 &&
					s.State.Terminated.FinishedAt.IsZero()
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := observed(pod, false)
			if tt.c != nil {
				tt.c.Name = "a"
				o.Containers["a"] = *tt.c
			}
			if tt.waiting != nil {
				o.Record.Failures = map[string]record.Failure{"a": *tt.waiting}
			}
			if s := Status(o, epoch).ContainerStatuses[0]; !tt.check(s) {
				t.Errorf("status = %+v", s)
			}
		})
	}
}

// A sidecar counts for the phase while it runs; once it has ended it does not.
func TestPhaseOfSidecars(t *testing.T) {
	t.Parallel()
	const always, never = v1.RestartPolicyAlways, v1.RestartPolicyNever
	tests := []struct {
		name   string
		policy v1.RestartPolicy
		states []string
		want   v1.PodPhase
	}{
		{name: "to come", policy: never, want: v1.PodPending},
		{name: "runs first", policy: never, states: []string{"s=running"}, want: v1.PodPending},
		{name: "all run", policy: never, states: []string{"s=running", "a=running"}, want: v1.PodRunning},
		{name: "runs on after the pod's work", policy: never, states: []string{"s=running", "a=exit0"}, want: v1.PodRunning},
		{name: "has ended after it", policy: never, states: []string{"s=exit1", "a=exit0"}, want: v1.PodSucceeded},
		{name: "has ended, the pod has failed", policy: never, states: []string{"s=exit0", "a=exit1"}, want: v1.PodFailed},
		{name: "has ended, the pod runs", policy: always, states: []string{"s=exit1", "a=running"}, want: v1.PodRunning},
		{name: "its record is gone", policy: always, states: []string{"a=running"}, want: v1.PodPending},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := withSidecars(aPod(tt.policy, "s;a"), "s")
			if got := Status(observed(pod, true, tt.states...), epoch).Phase; got != tt.want {
				t.Errorf("phase = %s, want %s", got, tt.want)
			}
		})
	}
}
