package podstate

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

// withSidecars makes the named init containers sidecars.
func withSidecars(pod *v1.Pod, names ...string) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	for i := range pod.Spec.InitContainers {
		for _, n := range names {
			if pod.Spec.InitContainers[i].Name == n {
				pod.Spec.InitContainers[i].RestartPolicy = &always
			}
		}
	}
	return pod
}

func TestDecideSidecars(t *testing.T) {
	t.Parallel()
	const always, never = v1.RestartPolicyAlways, v1.RestartPolicyNever
	tests := []struct {
		name    string
		policy  v1.RestartPolicy
		pod     string // s is a sidecar
		startup bool   // s has a startup probe
		states  []string
		probe   probe.Status
		want    string
	}{
		{name: "first is a sidecar", policy: always, pod: "s,i;a", want: "start s/0"},
		{name: "next follows a running sidecar", policy: always, pod: "s,i;a", states: []string{"s=running"}, want: "start i/0"},
		{name: "next waits for the startup probe", policy: always, pod: "s,i;a", startup: true, states: []string{"s=running"}, want: ""},
		{
			name: "next follows the startup probe", policy: always, pod: "s,i;a", startup: true, states: []string{"s=running"},
			probe: probe.Status{Started: true}, want: "start i/0",
		},
		{
			name: "startup failed", policy: always, pod: "s,i;a", startup: true, states: []string{"s=running"},
			probe: probe.Status{Failed: probe.Startup}, want: "kill s, start s/1",
		},
		{name: "pod follows the last sidecar", policy: always, pod: "i,s;a", states: []string{"i=exit0", "s=running"}, want: "start a/0"},
		{
			name: "liveness failed, the sequence continues", policy: always, pod: "i,s;a", states: []string{"s=running"},
			probe: probe.Status{Started: true, Failed: probe.Liveness}, want: "kill s, start s/1, start a/0",
		},
		{name: "an OOM-killed sidecar is restarted as any", policy: never, pod: "s,i;a", states: []string{"s=oom0"}, want: "start s/1"},
		{name: "an ended sidecar is restarted with the pod running", policy: never, pod: "s;a", states: []string{"s=exit1", "a=running"}, want: "start s/1"},
		{name: "and while a later init container runs", policy: never, pod: "s,i;a", states: []string{"s=exit0", "i=running"}, want: "start s/1"},
		{name: "a sidecar whose record is gone", policy: always, pod: "s;a", states: []string{"a=running"}, want: "start s/0"},
		{name: "a plain one whose record is gone", policy: always, pod: "i,s;a", states: []string{"s=running", "a=running"}, want: ""},
		{name: "sidecars alone keep no pod alive", policy: never, pod: "s;a", states: []string{"s=running", "a=exit0"}, want: "kill-pod"},
		{name: "sidecars run while a container waits", policy: always, pod: "s;a", states: []string{"s=running", "a=exit1"}, want: "start a/1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := withSidecars(aPod(tt.policy, tt.pod), "s")
			for i := range pod.Spec.InitContainers {
				if c := &pod.Spec.InitContainers[i]; tt.startup && c.Name == "s" {
					c.StartupProbe = &v1.Probe{}
				}
			}
			o := observed(pod, true, tt.states...)
			o.Probes = map[string]probe.Status{"s-0": tt.probe}
			if got := describe(Decide(o, epoch)); got != tt.want {
				t.Errorf("decide = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDecideProbes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		policy v1.RestartPolicy
		failed probe.Kind
		want   string
	}{
		{name: "well", policy: v1.RestartPolicyAlways, want: ""},
		{name: "liveness", policy: v1.RestartPolicyAlways, failed: probe.Liveness, want: "kill a, start a/1"},
		{name: "startup", policy: v1.RestartPolicyOnFailure, failed: probe.Startup, want: "kill a, start a/1"},
		{name: "never restarted", policy: v1.RestartPolicyNever, failed: probe.Liveness, want: "kill a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := aPod(tt.policy, ";a,b")
			o := observed(pod, true, "a=running", "b=running")
			o.Probes = map[string]probe.Status{"a-0": {Started: true, Failed: tt.failed}}
			if got := describe(Decide(o, epoch)); got != tt.want {
				t.Errorf("decide = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	policyOf := func(p v1.ContainerRestartPolicy) *v1.ContainerRestartPolicy { return &p }
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
		}}
	}
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	tests := []struct {
		name string
		pod  v1.RestartPolicy
		own  *v1.ContainerRestartPolicy
		rule []v1.ContainerRestartRule
		code int32
		want bool
	}{
		{name: "pod always", pod: v1.RestartPolicyAlways, want: true},
		{name: "pod on failure, success", pod: v1.RestartPolicyOnFailure},
		{name: "pod on failure, failure", pod: v1.RestartPolicyOnFailure, code: 1, want: true},
		{name: "pod never", pod: v1.RestartPolicyNever, code: 1},
		{name: "own over pod", pod: v1.RestartPolicyNever, own: policyOf(v1.ContainerRestartPolicyAlways), want: true},
		{name: "own never", pod: v1.RestartPolicyAlways, own: policyOf(v1.ContainerRestartPolicyNever), code: 1},
		{name: "rule matches", pod: v1.RestartPolicyAlways, own: policyOf(v1.ContainerRestartPolicyNever), rule: rule(in, 42), code: 42, want: true},
		{name: "rule does not match", pod: v1.RestartPolicyAlways, own: policyOf(v1.ContainerRestartPolicyNever), rule: rule(in, 42), code: 1},
		{name: "rule by exclusion", pod: v1.RestartPolicyNever, own: policyOf(v1.ContainerRestartPolicyNever), rule: rule(notIn, 42), code: 1, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tt.pod}}
			def := &v1.Container{RestartPolicy: tt.own, RestartPolicyRules: tt.rule}
			c := engine.Container{State: engine.StateExited, Exit: engine.Exit{ExitCode: tt.code}}
			if got := (&Observation{Pod: pod, Record: &record.Pod{}}).restarts(def, c); got != tt.want {
				t.Errorf("restarts = %t, want %t", got, tt.want)
			}
		})
	}
}
