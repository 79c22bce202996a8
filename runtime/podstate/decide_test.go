package podstate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// aPod has init containers and containers named as given, in "init1,init2;main" form.
func aPod(policy v1.RestartPolicy, names string) *v1.Pod {
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "uid-1"
	pod.Spec.RestartPolicy = policy
	inits, mains, _ := strings.Cut(names, ";")
	for n := range strings.SplitSeq(inits, ",") {
		if n != "" {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: n})
		}
	}
	for n := range strings.SplitSeq(mains, ",") {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: n})
	}
	return pod
}

// seen makes the newest instances from "name=running", "name=exit0", "name=exit3",
// "name=oom0" (OOM-killed, exit code 0), "name=created" and "name=unknown".
func seen(states ...string) map[string]engine.Container {
	m := map[string]engine.Container{}
	for _, s := range states {
		name, state, _ := strings.Cut(s, "=")
		c := engine.Container{ID: name + "-0", Name: name, StartedAt: epoch.Add(-time.Minute)}
		switch {
		case state == "running":
			c.State = engine.StateRunning
		case state == "created":
			c.State = engine.StateCreated
		case state == "unknown":
			c.State = engine.StateUnknown
		case state == "oom0":
			c.State, c.Exit = engine.StateExited, engine.Exit{OOMKilled: true, FinishedAt: epoch}
		default:
			c.State = engine.StateExited
			if _, err := fmt.Sscanf(state, "exit%d", &c.Exit.ExitCode); err != nil {
				panic(err)
			}
			c.Exit.FinishedAt = epoch
		}
		m[name] = c
	}
	return m
}

// observed is a pod whose containers are as seen makes them.
func observed(pod *v1.Pod, sandbox bool, states ...string) *Observation {
	o := &Observation{Pod: pod, Containers: seen(states...), Record: &record.Pod{}}
	if sandbox {
		o.Sandbox = &engine.Sandbox{}
	}
	return o
}

// describe turns actions into one line.
func describe(a Actions) string {
	var out []string
	if a.Fail != nil {
		out = append(out, "fail "+a.Fail.Reason)
	}
	if a.Discard {
		out = append(out, "restart-all")
	}
	if a.KillPod {
		out = append(out, "kill-pod")
	}
	if a.CreateSandbox {
		out = append(out, "sandbox")
	}
	for _, c := range a.Kill {
		if a.KillPod {
			break // all that run
		}
		out = append(out, "kill "+c.Name)
	}
	for _, c := range a.PostStart {
		out = append(out, "postStart "+c.Name)
	}
	for _, s := range a.Start {
		out = append(out, fmt.Sprintf("start %s/%d", s.Container.Name, s.Attempt))
	}
	for _, s := range a.Wait {
		out = append(out, fmt.Sprintf("wait %s/%d %s", s.Container.Name, s.Attempt, s.Delay))
	}
	for _, s := range a.Refused {
		out = append(out, fmt.Sprintf("refuse %s/%d", s.Container.Name, s.Attempt))
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	tests := []struct {
		name    string
		policy  v1.RestartPolicy
		pod     string
		box     bool
		states  []string
		crashes int
		want    string
	}{
		{name: "new pod", policy: always, pod: ";a,b", want: "sandbox, start a/0, start b/0"},
		{name: "new pod with init", policy: always, pod: "i,j;a", want: "sandbox, start i/0"},
		{name: "first init runs", policy: always, pod: "i,j;a", box: true, states: []string{"i=running"}, want: ""},
		{name: "first init done", policy: always, pod: "i,j;a", box: true, states: []string{"i=exit0"}, want: "start j/0"},
		{name: "all init done", policy: always, pod: "i,j;a", box: true, states: []string{"i=exit0", "j=exit0"}, want: "start a/0"},
		{name: "early init record gone", policy: always, pod: "i,j;a", box: true, states: []string{"j=exit0"}, want: "start a/0"},
		{name: "init failed", policy: onFailure, pod: "i;a", box: true, states: []string{"i=exit1"}, crashes: 1, want: "start i/1"},
		{name: "init failed again", policy: always, pod: "i;a", box: true, states: []string{"i=exit1"}, crashes: 2, want: "wait i/1 10s"},
		{name: "init failed, never", policy: never, pod: "i;a", box: true, states: []string{"i=exit1"}, want: "kill-pod"},
		{name: "init OOM-killed, exit 0", policy: always, pod: "i,j;a", box: true, states: []string{"i=oom0"}, crashes: 1, want: "start i/1"},
		{name: "init OOM-killed, exit 0, on failure", policy: onFailure, pod: "i;a", box: true, states: []string{"i=oom0"}, crashes: 2, want: "wait i/1 10s"},
		{name: "init OOM-killed, exit 0, never", policy: never, pod: "i;a", box: true, states: []string{"i=oom0"}, want: "kill-pod"},
		{name: "init half made", policy: always, pod: "i;a", box: true, states: []string{"i=created"}, want: "start i/0"},
		{name: "running pod ignores init", policy: always, pod: "i;a", box: true, states: []string{"a=running"}, want: ""},
		{name: "all run", policy: always, pod: ";a,b", box: true, states: []string{"a=running", "b=running"}, want: ""},
		{name: "one missing", policy: always, pod: ";a,b", box: true, states: []string{"a=running"}, want: "start b/0"},
		{name: "first crash restarts at once", policy: always, pod: ";a", box: true, states: []string{"a=exit2"}, crashes: 1, want: "start a/1"},
		{name: "second crash waits", policy: always, pod: ";a", box: true, states: []string{"a=exit2"}, crashes: 2, want: "wait a/1 10s"},
		{name: "third crash waits longer", policy: always, pod: ";a", box: true, states: []string{"a=exit2"}, crashes: 3, want: "wait a/1 20s"},
		{name: "crash back-off has a cap", policy: always, pod: ";a", box: true, states: []string{"a=exit2"}, crashes: 40, want: "wait a/1 5m0s"},
		{name: "exit 0, always", policy: always, pod: ";a", box: true, states: []string{"a=exit0"}, crashes: 1, want: "start a/1"},
		{name: "exit 0, on failure", policy: onFailure, pod: ";a", box: true, states: []string{"a=exit0"}, want: "kill-pod"},
		{name: "exit 1, on failure", policy: onFailure, pod: ";a", box: true, states: []string{"a=exit1"}, crashes: 1, want: "start a/1"},
		{name: "OOM-killed, exit 0, on failure", policy: onFailure, pod: ";a", box: true, states: []string{"a=oom0"}, want: "kill-pod"},
		{name: "exit 1, never", policy: never, pod: ";a", box: true, states: []string{"a=exit1"}, want: "kill-pod"},
		{name: "one of two done, never", policy: never, pod: ";a,b", box: true, states: []string{"a=exit1", "b=running"}, want: ""},
		{name: "one of two done, other missing, never", policy: never, pod: ";a,b", box: true, states: []string{"a=exit1"}, want: "start b/0"},
		{name: "init failed, never, without a sandbox", policy: never, pod: "i;a", states: []string{"i=exit1"}, want: "kill-pod"},
		{name: "finished pod, never", policy: never, pod: ";a", states: []string{"a=exit1"}, want: "kill-pod"},
		{name: "finished pod, on failure", policy: onFailure, pod: ";a", states: []string{"a=exit0"}, want: "kill-pod"},
		{name: "after a reboot, always", policy: always, pod: ";a,b", states: []string{"a=unknown", "b=unknown"}, want: "kill-pod, sandbox, start a/1, start b/1"},
		{name: "after a reboot, always, init again", policy: always, pod: "i;a", states: []string{"i=exit0", "a=unknown"}, want: "kill-pod, sandbox, start i/1"},
		{name: "after a reboot, never", policy: never, pod: ";a", states: []string{"a=unknown"}, want: "kill-pod"},
		{name: "after a reboot, on failure", policy: onFailure, pod: ";a,b", states: []string{"a=exit0", "b=unknown"}, want: "kill-pod, sandbox, start b/1"},
		{name: "cut off before the first start, never", policy: never, pod: ";a", states: []string{"a=created"}, want: "kill-pod, sandbox, start a/0"},
		{name: "after a reboot, never, during init", policy: never, pod: "i,j;a", states: []string{"i=exit0", "j=unknown"}, want: "fail SandboxLost, kill-pod"},
		{name: "after a reboot, never, one missing", policy: never, pod: ";a,b", states: []string{"a=exit0", "b=created"}, want: "fail SandboxLost, kill-pod"},
		{name: "unknown in a sandbox", policy: always, pod: ";a", box: true, states: []string{"a=unknown"}, want: "start a/1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := aPod(tt.policy, tt.pod)
			o := observed(pod, tt.box, tt.states...)
			o.Crashes = map[string]int{}
			for name := range o.Containers {
				o.Crashes[name] = tt.crashes
			}
			if got := describe(Decide(o, epoch)); got != tt.want {
				t.Errorf("decide = %q, want %q", got, tt.want)
			}
		})
	}
}

// TestDecideByRulesOfContainers: what a container's own policy and rules ask for counts in a pod
// that is never restarted, too.
func TestDecideByRulesOfContainers(t *testing.T) {
	t.Parallel()
	pod := aPod(v1.RestartPolicyNever, ";a")
	policy := v1.ContainerRestartPolicyNever
	pod.Spec.Containers[0].RestartPolicy = &policy
	pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{137}},
	}}
	killed := observed(pod, true, "a=running")
	killed.Probes = map[string]probe.Status{"a-0": {Failed: probe.Liveness}}
	for _, tt := range []struct {
		name string
		o    *Observation
		want string
	}{
		{"killed by a probe", killed, "kill a"},
		{"ended as in the rule", observed(pod, true, "a=exit137"), "start a/1"},
		{"ended otherwise", observed(pod, true, "a=exit1"), "kill-pod"},
		{"without a sandbox", observed(pod, false, "a=exit137"), "fail SandboxLost, kill-pod"},
		{"ended otherwise, without a sandbox", observed(pod, false, "a=exit1"), "kill-pod"},
	} {
		if got := describe(Decide(tt.o, epoch)); got != tt.want {
			t.Errorf("%s: decide = %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestBackOffAfterTheClockWasSetBack: nothing waits until the clock is where it was.
func TestBackOffAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	o := observed(aPod(v1.RestartPolicyAlways, ";a"), true, "a=exit2")
	o.Crashes = map[string]int{"a": 3}
	if got, want := describe(Decide(o, epoch.Add(-time.Hour))), "start a/1"; got != want {
		t.Errorf("decide = %q, want %q", got, want)
	}
}

func TestDecideReplacesChangedContainer(t *testing.T) {
	t.Parallel()
	pod := aPod(v1.RestartPolicyNever, ";a,b")
	o := observed(pod, true, "a=running", "b=running")
	for name, c := range o.Containers {
		c.Image = "docker.io/library/box:latest"
		o.Containers[name] = c
	}
	pod.Spec.Containers[0].Image, pod.Spec.Containers[1].Image = "other", "box"
	if got, want := describe(Decide(o, epoch)), "kill a, start a/1"; got != want {
		t.Errorf("decide = %q, want %q", got, want)
	}
}

func TestCrashDelay(t *testing.T) {
	t.Parallel()
	want := []time.Duration{0, 0, 10e9, 20e9, 40e9, 80e9, 160e9, 300e9, 300e9}
	got := make([]time.Duration, 0, len(want))
	for n := range want {
		got = append(got, crashDelay(n))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("crash delays (-want +got):\n%s", diff)
	}
}

func TestNewestPicksLastInstance(t *testing.T) {
	t.Parallel()
	pod := aPod(v1.RestartPolicyAlways, ";a")
	got, stale := newest(pod, []engine.Container{
		{ID: "a-1", Name: "a", Attempt: 1}, {ID: "a-0", Name: "a"}, {ID: "gone-0", Name: "gone"},
	})
	if got["a"].ID != "a-1" || len(got) != 1 {
		t.Errorf("newest = %v", got)
	}
	if diff := cmp.Diff([]string{"a-0", "gone-0"}, stale); diff != "" {
		t.Errorf("stale (-want +got):\n%s", diff)
	}
}

// TestInterruptedStartIsNoRestart: an instance whose start was cut off is started with the same
// number, in a new sandbox as well.
func TestInterruptedStartIsNoRestart(t *testing.T) {
	t.Parallel()
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init", Image: "app:1"}},
		Containers:     []v1.Container{{Name: "main", Image: "app:1"}},
	}}
	o := &Observation{Pod: pod, Record: &record.Pod{}, Containers: map[string]engine.Container{
		"init": {ID: "init-2", Name: "init", Attempt: 2, State: engine.StateCreated},
		"main": {ID: "main-1", Name: "main", Attempt: 1, State: engine.StateExited},
	}}
	start := Decide(o, time.Time{}).Start
	if len(start) != 1 || start[0].Attempt != 2 {
		t.Fatalf("starts %+v", start)
	}
	// The instance has ended in the new sandbox.
	o.Record.Sandboxed, o.Sandbox = o.LastRun(), &engine.Sandbox{}
	o.Containers["init"] = engine.Container{ID: "init-2", Name: "init", Attempt: 2, State: engine.StateExited}
	start = Decide(o, time.Time{}).Start
	if len(start) != 1 || start[0].Container.Name != "main" || start[0].Attempt != 2 {
		t.Errorf("then starts %+v", start)
	}
}

// TestCreatedInAnEarlierSandbox: a container whose start was cut off there does not keep the init
// containers before it from running first.
func TestCreatedInAnEarlierSandbox(t *testing.T) {
	t.Parallel()
	for _, pod := range []struct{ names, cutOff string }{{"i;a", "a"}, {"i,j;a", "j"}, {"i,s;a", "s"}} {
		created := pod.cutOff + "=created"
		o := observed(withSidecars(aPod(v1.RestartPolicyAlways, pod.names), "s"), false, "i=exit0", created)
		if start := Decide(o, epoch).Start; len(start) != 1 || start[0].Container.Name != "i" {
			t.Fatalf("%s: starts %+v", created, start)
		}
		o.Record.Sandboxed, o.Sandbox = o.LastRun(), &engine.Sandbox{}
		for _, step := range []struct{ state, want string }{{"i=running", ""}, {"i=exit0", "start " + pod.cutOff + "/0"}} {
			next := observed(o.Pod, true, step.state, created)
			init := next.Containers["i"]
			init.ID, init.Attempt = "i-1", 1
			next.Containers["i"], next.Record = init, o.Record
			if got := describe(Decide(next, epoch)); got != step.want {
				t.Errorf("%s, %s: %q, want %q", created, step.state, got, step.want)
			}
		}
	}
}

// TestReasons: what is decided says why.
func TestReasons(t *testing.T) {
	t.Parallel()
	probed := func(policy v1.RestartPolicy, kind probe.Kind) *Observation {
		o := observed(aPod(policy, ";a,b"), true, "a=running", "b=running")
		o.Probes = map[string]probe.Status{"a-0": {Failed: kind}}
		return o
	}
	sidecar := func(change func(*Observation)) *Observation {
		pod := aPod(v1.RestartPolicyAlways, "s;a")
		pod.Spec.InitContainers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		o := observed(pod, true, "s=running", "a=running")
		change(o)
		return o
	}
	image := func(o *Observation, name, ran, now string) {
		c := o.Containers[name]
		c.Image = "localhost/" + ran + ":1"
		o.Containers[name] = c
		def := podspec.Container(o.Pod, name)
		def.Image = "localhost/" + now + ":1"
	}
	changed := observed(aPod(v1.RestartPolicyNever, ";a"), true, "a=running")
	image(changed, "a", "old", "new")
	crashed := observed(aPod(v1.RestartPolicyAlways, ";a"), true, "a=exit3")
	crashed.Crashes = map[string]int{"a": 2}
	again := probed(v1.RestartPolicyAlways, probe.Liveness)
	again.Crashes = map[string]int{"a": 2}
	c := again.Containers["a"]
	c.Last = &engine.Exit{FinishedAt: epoch}
	again.Containers["a"] = c
	failed := observed(aPod(v1.RestartPolicyAlways, ";a"), true, "a=running")
	failed.Record = &record.Pod{Failed: &record.Failure{}}
	refused := observed(aPod(v1.RestartPolicyAlways, ";a"), true, "a=exit3")
	refused.MostRestarts = map[string]int{"a": 0}
	discarded := observed(aPod(v1.RestartPolicyAlways, ";a"), true, "a=exit3")
	discarded.Record = &record.Pod{Discarded: map[string]int{"a": 0}}
	const backOff = "wait: back-off 10s restarting failed container=a pod=web_default(uid-1)"
	for _, tt := range []struct {
		name string
		in   *Observation
		want []string
	}{
		{"first", observed(aPod(v1.RestartPolicyAlways, ";a"), true), []string{"start: it has not run yet"}},
		{"created", observed(aPod(v1.RestartPolicyAlways, ";a"), true, "a=created"), []string{"start: it has not run yet"}},
		{"exited", observed(aPod(v1.RestartPolicyAlways, ";a"), true, "a=exit3"), []string{"start: the previous instance exited with code 3"}},
		{"lost", observed(aPod(v1.RestartPolicyAlways, ";a"), true, "a=unknown"), []string{"start: the instance before could not be located"}},
		{"restarted with all", discarded, []string{"start: all containers of the pod are restarted"}},
		{"in back-off", crashed, []string{backOff}},
		{"no restart left", refused, []string{"refuse: not started again: no restart was left"}},
		{
			"liveness", probed(v1.RestartPolicyAlways, probe.Liveness),
			[]string{"kill: Container a failed liveness probe, will be restarted", "start: a failed liveness probe"},
		},
		{"liveness, in back-off", again, []string{"kill: Container a failed liveness probe, will be restarted", backOff}},
		{"startup, never restarted", probed(v1.RestartPolicyNever, probe.Startup), []string{"kill: Container a failed startup probe"}},
		{"another image", changed, []string{"kill: Container a definition changed, will be restarted", "start: its definition has changed"}},
		{
			"liveness of a sidecar", sidecar(func(o *Observation) { o.Probes = map[string]probe.Status{"s-0": {Failed: probe.Liveness}} }),
			[]string{"kill: Init container s failed liveness probe", "start: s failed liveness probe"},
		},
		{
			"another image of a sidecar", sidecar(func(o *Observation) { image(o, "s", "old", "new") }),
			[]string{"kill: Init container s definition changed", "start: its definition has changed"},
		},
		{"the pod has failed", failed, []string{"kill: Stopping container a"}},
	} {
		a := Decide(tt.in, epoch.Add(time.Second))
		var got []string
		for _, k := range a.Kill {
			got = append(got, "kill: "+k.Reason)
		}
		for what, all := range map[string][]Start{"start": a.Start, "wait": a.Wait, "refuse": a.Refused} {
			for _, s := range all {
				got = append(got, what+": "+s.Reason)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
