package podstate

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

// hooked is a pod whose containers all have a postStart hook, in aPod's form; those named "s..." are
// sidecars.
func hooked(policy v1.RestartPolicy, names string) *v1.Pod {
	pod := aPod(policy, names)
	for _, c := range podspec.Containers(pod) {
		c.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}}}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; strings.HasPrefix(c.Name, "s") {
			pod = withSidecars(pod, c.Name)
		} else {
			c.Lifecycle = nil
		}
	}
	return pod
}

// TestDecidePostStart: a hook that nobody has seen pass runs again, and what comes after its
// container waits for it, as when it ran for the first time.
func TestDecidePostStart(t *testing.T) {
	t.Parallel()
	const always, never = v1.RestartPolicyAlways, v1.RestartPolicyNever
	for _, tt := range []struct {
		name    string
		policy  v1.RestartPolicy
		pod     string
		states  []string
		pending string // IDs
		failed  string // ID of a container that its liveness probe has failed
		want    string
	}{
		{name: "passed", policy: always, pod: ";a", states: []string{"a=running"}},
		{name: "not passed", policy: always, pod: ";a", states: []string{"a=running"}, pending: "a-0", want: "postStart a"},
		{name: "not passed, never restarted", policy: never, pod: ";a", states: []string{"a=running"}, pending: "a-0", want: "postStart a"},
		{name: "that of an earlier instance", policy: always, pod: ";a", states: []string{"a=running"}, pending: "a-9"},
		{name: "before the next container", policy: always, pod: ";a,b", states: []string{"a=running"}, pending: "a-0", want: "postStart a, start b/0"},
		{name: "in spec order", policy: always, pod: ";a,b", states: []string{"a=running", "b=running"}, pending: "a-0 b-0", want: "postStart a, postStart b"},
		{name: "a sidecar holds the others back", policy: always, pod: "s;a", states: []string{"s=running"}, pending: "s-0", want: "postStart s"},
		{name: "a sidecar has passed", policy: always, pod: "s;a", states: []string{"s=running"}, want: "start a/0"},
		{name: "the later of two sidecars", policy: always, pod: "s,s2,i;a", states: []string{"s=running", "s2=running"}, pending: "s2-0", want: "postStart s2"},
		{name: "two sidecars", policy: always, pod: "s,s2;a", states: []string{"s=running", "s2=running", "a=running"}, pending: "s-0 s2-0", want: "postStart s, postStart s2"},
		{name: "a sidecar before init containers", policy: always, pod: "s,i;a", states: []string{"s=running"}, pending: "s-0", want: "postStart s"},
		{name: "a restarted sidecar of a running pod", policy: always, pod: "s;a", states: []string{"s=running", "a=running"}, pending: "s-0", want: "postStart s"},
		{name: "ended during the hook", policy: always, pod: ";a", states: []string{"a=exit1"}, pending: "a-0", want: "start a/1"},
		{name: "ended with success during the hook", policy: never, pod: ";a", states: []string{"a=exit0"}, pending: "a-0", want: "kill-pod"},
		{name: "probed by an earlier version", policy: always, pod: ";a", states: []string{"a=running"}, pending: "a-0", failed: "a-0", want: "postStart a"},
		{name: "without a sandbox", policy: always, pod: ";a", states: []string{"a=unknown"}, pending: "a-0", want: "start a/1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := observed(hooked(tt.policy, tt.pod), true, tt.states...)
			o.Record.PostStarts = map[string]string{}
			for id := range strings.FieldsSeq(tt.pending) {
				o.Record.PostStarts[strings.Split(id, "-")[0]] = id
			}
			if tt.failed != "" {
				o.Probes = map[string]probe.Status{tt.failed: {Started: true, Failed: probe.Liveness}}
			}
			if got := describe(Decide(o, epoch)); got != tt.want {
				t.Errorf("decide = %q, want %q", got, tt.want)
			}
		})
	}
}

// A container that has lost its hook with an update has nothing to run.
func TestDecidePostStartWithoutHook(t *testing.T) {
	t.Parallel()
	o := observed(aPod(v1.RestartPolicyAlways, ";a"), true, "a=running")
	o.Record.PostStarts = map[string]string{"a": "a-0"}
	if got := describe(Decide(o, epoch)); got != "" {
		t.Errorf("decide = %q, want nothing", got)
	}
}

// TestStatusDuringPostStart: a container waits until its hook has passed, as in the kubelet's status,
// with the count of an instance that runs.
func TestStatusDuringPostStart(t *testing.T) {
	t.Parallel()
	running := engine.Container{ID: "a-1", Name: "a", Attempt: 1, State: engine.StateRunning, StartedAt: epoch}
	again := running
	again.Last = &engine.Exit{ContainerID: "a-0", ExitCode: 3, StartedAt: epoch, FinishedAt: epoch}
	for _, tt := range []struct {
		name   string
		c      engine.Container
		record record.Pod
		limit  int64 // activeDeadlineSeconds
		phase  v1.PodPhase
		reason string // "" when it runs
	}{
		{name: "first instance", c: running, phase: v1.PodPending, reason: ReasonCreating},
		{name: "next instance", c: again, phase: v1.PodRunning, reason: ReasonCreating},
		{name: "of a pod that has failed", c: running, record: record.Pod{Failed: &record.Failure{Reason: "Gone"}}, phase: v1.PodFailed},
		{name: "past the deadline", c: running, record: record.Pod{Started: epoch.Add(-time.Hour)}, limit: 60, phase: v1.PodFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := hooked(v1.RestartPolicyAlways, ";a")
			if tt.limit > 0 {
				pod.Spec.ActiveDeadlineSeconds = &tt.limit
			}
			o := observed(pod, true)
			o.Containers["a"], o.Record = tt.c, &tt.record
			o.Record.PostStarts = map[string]string{"a": "a-1"}
			s := Status(o, epoch)
			cs := s.ContainerStatuses[0]
			if s.Phase != tt.phase || cs.RestartCount != 1 || cs.ContainerID != ContainerIDPrefix+"a-1" {
				t.Errorf("phase %s, %+v; want %s", s.Phase, cs, tt.phase)
			}
			if w := cs.State.Waiting; tt.reason != "" && (w == nil || w.Reason != tt.reason || w.Message != podspec.MessagePostStart || cs.Ready || *cs.Started) {
				t.Errorf("%+v, want it to wait: %s", cs, tt.reason)
			}
			if tt.reason == "" && cs.State.Running == nil {
				t.Errorf("%+v, want it to run", cs)
			}
		})
	}
}

// A sidecar whose hook has not passed keeps the pod from being initialized.
func TestStatusDuringPostStartOfSidecar(t *testing.T) {
	t.Parallel()
	o := observed(hooked(v1.RestartPolicyAlways, "s;a"), true, "s=running")
	o.Record.PostStarts = map[string]string{"s": "s-0"}
	s := Status(o, epoch)
	side, main := s.InitContainerStatuses[0].State.Waiting, s.ContainerStatuses[0].State.Waiting
	if s.Phase != v1.PodPending || side == nil || side.Message != podspec.MessagePostStart || main == nil || main.Reason != ReasonInitializing {
		t.Errorf("phase %s, sidecar %+v, container %+v", s.Phase, side, main)
	}
	if c := podspec.Condition(s, v1.PodInitialized); c.Status != v1.ConditionFalse {
		t.Errorf("condition %+v, want it not to be initialized", c)
	}
}
