package podstate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

// withRestartAll gives the container a rule: the exit code 42 restarts all.
func withRestartAll(pod *v1.Pod, name string) *v1.Pod {
	own := v1.ContainerRestartPolicyNever
	for _, c := range podspec.Containers(pod) {
		if c.Name == name {
			c.RestartPolicy = &own
			c.RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}
	}
	return pod
}

// What was there before the sandbox, and what was ended to restart all.
func TestDecideRestartAll(t *testing.T) {
	t.Parallel()
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	zero := func(names ...string) map[string]int {
		m := map[string]int{}
		for _, n := range names {
			m[n] = 0
		}
		return m
	}
	tests := []struct {
		name    string
		policy  v1.RestartPolicy
		pod     string // a has the rule, s is a sidecar
		lost    bool   // no sandbox
		states  []string
		record  record.Pod
		crashes int
		want    string
		phase   v1.PodPhase
	}{
		{name: "the rule matches", policy: never, pod: "i;a,b", states: []string{"i=exit0", "a=exit42", "b=exit0"}, want: "restart-all", phase: v1.PodRunning},
		{name: "also in a lost sandbox", policy: never, pod: ";a", lost: true, states: []string{"a=exit42"}, want: "restart-all", phase: v1.PodRunning},
		{name: "of an init container", policy: never, pod: "a,i;b", states: []string{"a=exit42"}, want: "restart-all", phase: v1.PodPending},
		{name: "another code", policy: never, pod: ";a,b", states: []string{"a=exit1", "b=running"}, want: "", phase: v1.PodRunning},
		{
			name: "all start again, the init container first", policy: never, pod: "i;a,b", states: []string{"i=exit0", "a=exit42", "b=exit3"},
			record: record.Pod{Sandboxed: zero("i", "a", "b"), Discarded: zero("i", "a", "b")}, crashes: 5, want: "start i/1", phase: v1.PodRunning,
		},
		{
			name: "and the sidecar", policy: never, pod: "s;a", states: []string{"s=exit0", "a=exit42"},
			record: record.Pod{Sandboxed: zero("s", "a"), Discarded: zero("s", "a")}, want: "start s/1", phase: v1.PodRunning,
		},
		{
			name: "without init containers at once", policy: never, pod: ";a,b", states: []string{"a=exit42", "b=exit0"},
			record: record.Pod{Sandboxed: zero("a", "b"), Discarded: zero("a", "b")}, crashes: 5, want: "start a/1, start b/1", phase: v1.PodRunning,
		},
		{
			name: "a new sandbox begins with the first init container", policy: always, pod: "i,j;b", lost: true,
			states: []string{"i=exit0", "j=exit0", "b=unknown"}, want: "kill-pod, sandbox, start i/1", phase: v1.PodRunning,
		},
		{
			name: "which runs before the others", policy: always, pod: "i,j;b", states: []string{"i=running", "j=exit0", "b=unknown"},
			record: record.Pod{Sandboxed: map[string]int{"i": -1, "j": 0, "b": 0}}, want: "", phase: v1.PodPending,
		},
		{
			name: "then the second", policy: always, pod: "i,j;b", states: []string{"i=exit0", "j=exit0", "b=unknown"},
			record: record.Pod{Sandboxed: map[string]int{"i": -1, "j": 0, "b": 0}}, want: "start j/1", phase: v1.PodRunning,
		},
		{
			name: "what has succeeded stays so", policy: onFailure, pod: "i;b,c", states: []string{"i=exit0", "b=exit0", "c=exit1"},
			record: record.Pod{Sandboxed: map[string]int{"i": -1, "b": 0, "c": 0}}, want: "start c/1", phase: v1.PodRunning,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := withRestartAll(withSidecars(aPod(tt.policy, tt.pod), "s"), "a")
			o := observed(pod, !tt.lost, tt.states...)
			o.Record, o.Crashes = &tt.record, map[string]int{"a": tt.crashes, "b": tt.crashes, "i": tt.crashes}
			if got := describe(Decide(o, epoch)); got != tt.want {
				t.Errorf("decide = %q, want %q", got, tt.want)
			}
			if got := Status(o, epoch).Phase; got != tt.phase {
				t.Errorf("phase = %s, want %s", got, tt.phase)
			}
		})
	}
}

func TestTruncateMessages(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 4096)
	statuses := make([]v1.ContainerStatus, 4)
	statuses[0].State.Terminated = &v1.ContainerStateTerminated{Message: long}
	statuses[1].LastTerminationState.Terminated = &v1.ContainerStateTerminated{Message: "y" + long}
	statuses[2].State.Terminated = &v1.ContainerStateTerminated{Message: "short"}
	truncateMessages(statuses)
	for i, want := range []int{3072, 3072, 5} {
		end := podspec.LastTermination(statuses[i])
		if len(end.Message) != want {
			t.Errorf("%d: %d bytes, want %d", i, len(end.Message), want)
		}
	}
	if !strings.HasPrefix(statuses[1].LastTerminationState.Terminated.Message, "y") {
		t.Error("the beginning was cut off, not the end")
	}
}

// TestDecideWithinLimits: nothing starts after the last restart that is allowed, however the instance
// before ends.
func TestDecideWithinLimits(t *testing.T) {
	t.Parallel()
	const always, onFailure = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure
	for _, tt := range []struct {
		name   string
		policy v1.RestartPolicy
		pod    string // those named "s" are sidecars
		noBox  bool
		states []string
		failed string // the container that its liveness probe has failed
		most   map[string]int
		want   string
	}{
		{name: "no limit", policy: always, pod: ";a", states: []string{"a=running"}, failed: "a", want: "kill a, start a/1"},
		{name: "within", policy: always, pod: ";a", states: []string{"a=running"}, failed: "a", most: map[string]int{"a": 1}, want: "kill a, start a/1"},
		{name: "killed by a probe", policy: always, pod: ";a", states: []string{"a=running"}, failed: "a", most: map[string]int{"a": 0}, want: "kill a, refuse a/1"},
		{name: "killed by a probe, on failure", policy: onFailure, pod: ";a", states: []string{"a=running"}, failed: "a", most: map[string]int{"a": 0}, want: "kill a, refuse a/1"},
		{name: "sidecar", policy: always, pod: "s;a", states: []string{"s=running", "a=running"}, failed: "s", most: map[string]int{"s": 0, "a": 0}, want: "kill s, refuse s/1"},
		{name: "nothing else starts", policy: always, pod: ";a,b", states: []string{"a=running", "b=exit1"}, failed: "a", most: map[string]int{"a": 0, "b": 5}, want: "kill a, refuse a/1"},
		{name: "the others run on", policy: always, pod: ";a,b", states: []string{"a=running", "b=running"}, failed: "a", most: map[string]int{"a": 0, "b": 0}, want: "kill a, refuse a/1"},
		{name: "crashed meanwhile", policy: always, pod: ";a", states: []string{"a=exit1"}, most: map[string]int{"a": 0}, want: "refuse a/1"},
		{name: "first start", policy: always, pod: "i;a", noBox: true, most: map[string]int{"i": 0, "a": 0}, want: "sandbox, start i/0"},
		{name: "sandbox lost", policy: always, pod: ";a", noBox: true, states: []string{"a=running"}, most: map[string]int{"a": 0}, want: "kill-pod, refuse a/1"},
		{name: "sandbox lost, with init containers", policy: always, pod: "i;a", noBox: true, states: []string{"i=exit0", "a=running"}, most: map[string]int{"i": 0, "a": 0}, want: "kill-pod, refuse a/1"},
		{name: "sandbox lost, an init container has passed", policy: always, pod: "i;a", noBox: true, states: []string{"i=exit0"}, most: map[string]int{"i": 0, "a": 0}, want: "kill-pod, sandbox, start i/1"},
		{name: "init container has failed", policy: always, pod: "i;a", states: []string{"i=exit1"}, most: map[string]int{"i": 0, "a": 0}, want: "refuse i/1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := withSidecars(aPod(tt.policy, tt.pod), "s")
			o := observed(pod, !tt.noBox, tt.states...)
			o.MostRestarts = tt.most
			if tt.failed != "" {
				o.Probes = map[string]probe.Status{tt.failed + "-0": {Started: true, Failed: probe.Liveness}}
			}
			if got := describe(Decide(o, epoch)); got != tt.want {
				t.Errorf("decide = %q, want %q", got, tt.want)
			}
		})
	}
}

// TestDecideRestartAllWithinLimits: after all containers were discarded, none starts again if one of
// them may not.
func TestDecideRestartAllWithinLimits(t *testing.T) {
	t.Parallel()
	o := observed(aPod(v1.RestartPolicyOnFailure, "i;a,b"), true, "i=exit0", "a=exit42", "b=exit0")
	o.Record.Discarded = map[string]int{"i": 0, "a": 0, "b": 0}
	o.Record.Sandboxed = o.Record.Discarded
	o.MostRestarts = map[string]int{"i": 1, "a": 1, "b": 0}
	if got, want := describe(Decide(o, epoch)), "refuse b/1"; got != want {
		t.Errorf("decide = %q, want %q", got, want)
	}
}

// TestKilledContainerStartsAgain: a container that was killed to be restarted is, also if its next
// instance could not start at once, and it has exited with 0 when it was told to end.
func TestKilledContainerStartsAgain(t *testing.T) {
	t.Parallel()
	o := observed(aPod(v1.RestartPolicyOnFailure, ";a"), true, "a=exit0")
	o.Record.Failures = map[string]record.Failure{"a": {Reason: ReasonCrashLoopBackOff, Attempt: 1}}
	if got, want := describe(Decide(o, epoch)), "start a/1"; got != want {
		t.Errorf("decide = %q, want %q", got, want)
	}
	s := Status(o, epoch)
	if w := s.ContainerStatuses[0].State.Waiting; s.Phase != v1.PodRunning || w == nil || w.Reason != ReasonCrashLoopBackOff {
		t.Errorf("phase %s, %+v; want it to wait", s.Phase, s.ContainerStatuses[0])
	}
	o.Record.Failures["a"] = record.Failure{Reason: ReasonCrashLoopBackOff} // it was started since
	if got := Status(o, epoch).Phase; got != v1.PodSucceeded {
		t.Errorf("phase %s, want it to have succeeded", got)
	}
}
