package podspec

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// RestartPolicy is the container's own, else the pod's, else Always (the API's default). An ephemeral container is
// never restarted.
func RestartPolicy(pod *v1.Pod, c *v1.Container) v1.RestartPolicy {
	if IsEphemeral(pod, c.Name) {
		return v1.RestartPolicyNever
	}
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return cmp.Or(pod.Spec.RestartPolicy, v1.RestartPolicyAlways)
}

// ReasonOOMKilled is the reason of a container of which a process was killed because it ran out of
// memory. If that was not the first one, the container may have exited with 0.
const ReasonOOMKilled = "OOMKilled"

// Failed says whether the container has failed by the way it ended: with an exit code other than 0.
// An init container has failed with any if it was OOM-killed: what it was to prepare may be
// incomplete (isInitContainerFailed of pkg/kubelet/kuberuntime).
func Failed(pod *v1.Pod, c *v1.Container, end *v1.ContainerStateTerminated) bool {
	return end.ExitCode != 0 || end.Reason == ReasonOOMKilled && isPlainInit(pod, c)
}

// Restarts says whether the container is restarted after it has ended this way: by its own rules,
// else by its policy (podutil.ContainerShouldRestart). An init container that has ended well is
// not, unless all containers are (computeInitContainerActions of pkg/kubelet/kuberuntime).
func Restarts(pod *v1.Pod, c *v1.Container, end *v1.ContainerStateTerminated) bool {
	failed := Failed(pod, c, end)
	action, ok := RestartRule(c, end.ExitCode)
	if !failed && isPlainInit(pod, c) {
		return action == v1.ContainerRestartRuleActionRestartAllContainers
	}
	// A rule restarts the container, whatever its action.
	if ok {
		return true
	}
	policy := RestartPolicy(pod, c)
	return policy == v1.RestartPolicyAlways || policy == v1.RestartPolicyOnFailure && failed
}

// isPlainInit says whether the container is an init container but no sidecar.
func isPlainInit(pod *v1.Pod, c *v1.Container) bool {
	return !IsSidecar(c) && slices.ContainsFunc(pod.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name })
}

// RestartRule returns the action of the container's first rule for the exit code
// (podutil.FindMatchingContainerRestartRule).
func RestartRule(c *v1.Container, code int32) (v1.ContainerRestartRuleAction, bool) {
	for _, rule := range c.RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, code)
		if in == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return rule.Action, true
		}
	}
	return "", false
}

// IsEndless says whether the container is restarted however it ends.
func IsEndless(pod *v1.Pod, c *v1.Container) bool {
	return RestartPolicy(pod, c) == v1.RestartPolicyAlways
}

// Endless returns the first regular container of the pod that is restarted however it ends, so that the
// pod never completes; nil for none.
func Endless(pod *v1.Pod) *v1.Container {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; IsEndless(pod, c) {
			return c
		}
	}
	return nil
}

// NeverEnds says whether the pod goes on however its containers end: one of them is always restarted,
// and no deadline ends the pod.
func NeverEnds(pod *v1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds == nil && Endless(pod) != nil
}
