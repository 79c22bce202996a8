package podstate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// debugged is a pod with the ephemeral containers "debug", and "beside" with the first container as its target.
func debugged(pod *v1.Pod) *v1.Pod {
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}},
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "beside"}, TargetContainerName: pod.Spec.Containers[0].Name},
	}
	return pod
}

// TestDecideEphemeral: ephemeral containers start once in a pod with a sandbox, however far it is; they end with the
// pod, and it never depends on them.
func TestDecideEphemeral(t *testing.T) {
	t.Parallel()
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	for _, tt := range []struct {
		name   string
		policy v1.RestartPolicy
		pod    string
		box    bool
		states []string
		starts string // of ephemeral containers
		want   string // of all others
		kills  string
	}{
		{name: "both start", policy: always, pod: ";a", box: true, states: []string{"a=running"}, starts: "debug beside"},
		{name: "while the pod starts", policy: always, pod: "i;a", box: true, states: []string{"i=running"}, starts: "debug beside"},
		{name: "one was created and never ran", policy: always, pod: ";a", box: true, states: []string{"a=running", "debug=created", "beside=running"}, starts: "debug"},
		{name: "one that has ended stays so", policy: always, pod: ";a", box: true, states: []string{"a=running", "debug=exit1", "beside=unknown"}},
		{name: "one container is restarted", policy: always, pod: ";a", box: true, states: []string{"a=exit1", "debug=running", "beside=running"}, want: "start a/1"},
		{name: "the pod has completed", policy: never, pod: ";a", box: true, states: []string{"a=exit0", "debug=running"}, want: "kill-pod", kills: "debug"},
		{name: "the pod has failed", policy: never, pod: "i;a", box: true, states: []string{"i=exit1", "debug=running"}, want: "kill-pod", kills: "debug"},
		{name: "a new pod", policy: onFailure, pod: ";a", want: "sandbox, start a/0"},
		{name: "the sandbox was lost", policy: always, pod: ";a", states: []string{"a=running", "debug=running"}, want: "kill-pod, sandbox, start a/1", kills: "a debug"},
	} {
		got := Decide(observed(debugged(aPod(tt.policy, tt.pod)), tt.box, tt.states...), epoch)
		var starts, kills []string
		for _, s := range got.Ephemeral {
			starts = append(starts, s.Container.Name)
		}
		for _, k := range got.Kill {
			kills = append(kills, k.Name)
		}
		if starts := strings.Join(starts, " "); starts != tt.starts || describe(got) != tt.want {
			t.Errorf("%s: starts %q, want %q; else %q, want %q", tt.name, starts, tt.starts, describe(got), tt.want)
		}
		if kills := strings.Join(kills, " "); kills != tt.kills {
			t.Errorf("%s: kills %q, want %q", tt.name, kills, tt.kills)
		}
	}
}

// TestRestartAllKeepsEphemeral: a rule that restarts all containers neither kills nor restarts ephemeral ones.
func TestRestartAllKeepsEphemeral(t *testing.T) {
	t.Parallel()
	pod := debugged(aPod(v1.RestartPolicyNever, ";a,b"))
	pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{7}},
	}}
	o := observed(pod, true, "a=exit7", "b=running", "debug=running", "beside=exit0")
	if got := describe(Decide(o, epoch)); got != "restart-all, kill b" {
		t.Errorf("decided: %s", got)
	}
	if last := o.LastRun(); len(last) != 2 {
		t.Errorf("instances that count no more: %v", last)
	}
}

// TestStatusEphemeral: the status has ephemeral containers, and nothing else of it depends on them.
func TestStatusEphemeral(t *testing.T) {
	t.Parallel()
	for states, phase := range map[string]v1.PodPhase{
		"a=running debug=running beside=exit3": v1.PodRunning,
		"a=exit0 debug=running beside=exit3":   v1.PodSucceeded,
		"a=exit0 debug=created beside=exit3":   v1.PodSucceeded,
	} {
		pod := debugged(aPod(v1.RestartPolicyOnFailure, ";a"))
		with := Status(observed(pod, true, strings.Fields(states)...), epoch)
		beside := with.EphemeralContainerStatuses[1]
		if t3 := beside.State.Terminated; t3 == nil || t3.ExitCode != 3 || beside.RestartCount != 0 {
			t.Errorf("%s: beside: %+v", states, beside)
		}
		for _, cs := range with.EphemeralContainerStatuses {
			if cs.Ready || cs.Started != nil {
				t.Errorf("%s: ready: %+v", states, cs)
			}
		}
		if with.Phase != phase || podspec.IsReady(with) != (phase == v1.PodRunning) || podspec.Runs(with) != (phase == v1.PodRunning) {
			t.Errorf("%s: phase %s, conditions %v", states, with.Phase, with.Conditions)
		}
	}
}

func TestRefuseDebug(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, container, target string
		box                     bool
		states                  []string
		want                    string
	}{
		{name: "a pod that runs", container: "c", box: true, states: []string{"a=running"}},
		{name: "a target that runs", container: "c", target: "a", box: true, states: []string{"a=running"}},
		{name: "a pod that starts", container: "c", box: true},
		{name: "the name of a container", container: "a", box: true, states: []string{"a=running"}, want: `has a container "a" already`},
		{name: "the name of an ephemeral one", container: "debug", box: true, states: []string{"a=running"}, want: `has a container "debug" already`},
		{name: "a target that does not run", container: "c", target: "b", box: true, states: []string{"a=running", "b=exit1"}, want: `container "b" of pod "default/web" is not running`},
		{name: "a pod that has ended", container: "c", box: true, states: []string{"a=exit0", "b=exit0"}, want: "has ended: its phase is Succeeded"},
		{name: "a pod that was never started", container: "c", want: "does not run"},
	} {
		o := observed(debugged(aPod(v1.RestartPolicyNever, ";a,b")), tt.box, tt.states...)
		c := &v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: tt.container}, TargetContainerName: tt.target}
		err := RefuseDebug(o, c, epoch)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestStaleEphemeral: the instance of an ephemeral container is not taken for a stranger's.
func TestStaleEphemeral(t *testing.T) {
	t.Parallel()
	o := &Observation{Pod: debugged(aPod(v1.RestartPolicyAlways, ";a")), Record: observed(aPod("", ";a"), false).Record}
	o.SetContainers([]engine.Container{{ID: "1", Name: "debug"}, {ID: "2", Name: "other"}})
	if _, ok := o.Containers["debug"]; !ok || len(o.Stale) != 1 || o.Stale[0] != "2" {
		t.Errorf("containers %v, stale %v", o.Containers, o.Stale)
	}
}
