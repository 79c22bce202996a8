package podspec_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// testPod has two init containers, of which the second is a sidecar, and a container.
func testPod() *v1.Pod {
	ports := func(n int32) []v1.ContainerPort {
		return []v1.ContainerPort{{ContainerPort: 1}, {ContainerPort: 2, HostPort: n}}
	}
	return &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{
			{Name: "init", Ports: ports(1)},
			{Name: "sidecar", Ports: ports(2), RestartPolicy: new(v1.ContainerRestartPolicyAlways)},
		},
		Containers: []v1.Container{{Name: "main", Ports: ports(3)}},
	}}
}

func names(cs []*v1.Container) []string {
	var all []string
	for _, c := range cs {
		all = append(all, c.Name)
	}
	return all
}

func TestContainers(t *testing.T) {
	t.Parallel()
	pod := testPod()
	if diff := cmp.Diff([]string{"init", "sidecar", "main"}, names(podspec.Containers(pod))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"sidecar", "main"}, names(podspec.LongRunning(pod))); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]*v1.Container{
		"init": &pod.Spec.InitContainers[0], "main": &pod.Spec.Containers[0], "other": nil,
	} {
		if got := podspec.Container(pod, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	var ports []int32
	for _, p := range podspec.HostPorts(pod) {
		ports = append(ports, p.HostPort)
	}
	if diff := cmp.Diff([]int32{2, 3}, ports); diff != "" {
		t.Error(diff)
	}
}

func TestGracePeriod(t *testing.T) {
	t.Parallel()
	pod := &v1.Pod{}
	if got := podspec.GracePeriod(pod); got != 30*time.Second {
		t.Errorf("by default %s", got)
	}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
	if got := podspec.GracePeriod(pod); got != 0 {
		t.Errorf("of 0 s: %s", got)
	}
}

func TestLastTermination(t *testing.T) {
	t.Parallel()
	ended := func(code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
	}
	if got := podspec.LastTermination(v1.ContainerStatus{}); got != nil {
		t.Errorf("of none: %v", got)
	}
	if got := podspec.LastTermination(v1.ContainerStatus{LastTerminationState: ended(1)}); got.ExitCode != 1 {
		t.Errorf("of the instance before: %v", got)
	}
	if got := podspec.LastTermination(v1.ContainerStatus{State: ended(2), LastTerminationState: ended(1)}); got.ExitCode != 2 {
		t.Errorf("of this one: %v", got)
	}
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	policy := func(p v1.ContainerRestartPolicy) *v1.ContainerRestartPolicy { return &p }
	rule := func(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{
			Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
		}}
	}
	never, in, notIn := policy(v1.ContainerRestartPolicyNever), v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	for _, c := range []struct {
		name string
		pod  v1.RestartPolicy
		own  *v1.ContainerRestartPolicy
		rule []v1.ContainerRestartRule
		code int32
		want bool
	}{
		{"Always is the default", "", nil, nil, 0, true},
		{"OnFailure, 0", v1.RestartPolicyOnFailure, nil, nil, 0, false},
		{"OnFailure, 1", v1.RestartPolicyOnFailure, nil, nil, 1, true},
		{"Never", v1.RestartPolicyNever, nil, nil, 1, false},
		{"own policy wins", v1.RestartPolicyAlways, never, nil, 1, false},
		{"own OnFailure", v1.RestartPolicyNever, policy(v1.ContainerRestartPolicyOnFailure), nil, 1, true},
		{"own Always", v1.RestartPolicyNever, policy(v1.ContainerRestartPolicyAlways), nil, 0, true},
		{"rule for the code", v1.RestartPolicyNever, never, rule(in, 42), 42, true},
		{"rule for another code", v1.RestartPolicyNever, never, rule(in, 42), 1, false},
		{"rule for all other codes", v1.RestartPolicyNever, never, rule(notIn, 42), 1, true},
		{"rule for all but this code", v1.RestartPolicyNever, never, rule(notIn, 42), 42, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: c.pod}}
			box := &v1.Container{RestartPolicy: c.own, RestartPolicyRules: c.rule}
			if got := podspec.Restarts(pod, box, &v1.ContainerStateTerminated{ExitCode: c.code}); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestInitRestarts: an init container is restarted until it has ended well, a sidecar always. Only a
// rule that restarts all containers restarts one that has ended well.
func TestInitRestarts(t *testing.T) {
	t.Parallel()
	pod := testPod()
	ruled := func(action v1.ContainerRestartRuleAction) *v1.Container {
		c := pod.Spec.InitContainers[0].DeepCopy()
		c.RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    action,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{0}},
		}}
		return c
	}
	for _, c := range []struct {
		c      *v1.Container
		code   int32
		reason string
		want   bool
	}{
		{&pod.Spec.InitContainers[0], 0, "Completed", false},
		{&pod.Spec.InitContainers[0], 0, "OOMKilled", true},
		{&pod.Spec.InitContainers[0], 1, "Error", true},
		{ruled(v1.ContainerRestartRuleActionRestart), 0, "Completed", false},
		{ruled(v1.ContainerRestartRuleActionRestartAllContainers), 0, "Completed", true},
		{&pod.Spec.InitContainers[1], 0, "Completed", true},
		{&pod.Spec.Containers[0], 0, "Completed", true},
	} {
		if got := podspec.Restarts(pod, c.c, &v1.ContainerStateTerminated{ExitCode: c.code, Reason: c.reason}); got != c.want {
			t.Errorf("%s, exit code %d, %s: got %v", c.c.Name, c.code, c.reason, got)
		}
	}
}

// TestFailed: an OOM kill makes an init container fail, and no other.
func TestFailed(t *testing.T) {
	t.Parallel()
	pod := testPod()
	for _, c := range []struct {
		c      *v1.Container
		code   int32
		reason string
		want   bool
	}{
		{&pod.Spec.InitContainers[0], 0, "Completed", false},
		{&pod.Spec.InitContainers[0], 0, "OOMKilled", true},
		{&pod.Spec.InitContainers[0], 3, "Error", true},
		{&pod.Spec.InitContainers[1], 0, "OOMKilled", false},
		{&pod.Spec.Containers[0], 0, "OOMKilled", false},
		{&pod.Spec.Containers[0], 137, "OOMKilled", true},
	} {
		if got := podspec.Failed(pod, c.c, &v1.ContainerStateTerminated{ExitCode: c.code, Reason: c.reason}); got != c.want {
			t.Errorf("%s, exit code %d, %s: got %v", c.c.Name, c.code, c.reason, got)
		}
	}
}
