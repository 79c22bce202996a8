package runonce

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// matchFailurePolicy returns the action of the first rule that matches the failed pod, as
// matchPodFailurePolicy of pkg/controller/job/pod_failure_policy.go does. If there is none,
// the failure counts.
func matchFailurePolicy(policy *batchv1.PodFailurePolicy, pod *v1.Pod, st v1.PodStatus) (batchv1.PodFailurePolicyAction, string) {
	if policy == nil {
		return batchv1.PodFailurePolicyActionCount, ""
	}
	for i, rule := range policy.Rules {
		if rule.OnExitCodes != nil {
			if cs := matchExitCode(rule.OnExitCodes, st); cs != nil {
				return rule.Action, fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d matching %s rule at index %d",
					cs.Name, pod.Namespace, pod.Name, cs.State.Terminated.ExitCode, rule.Action, i)
			}
		} else if c := matchCondition(rule.OnPodConditions, st); c != nil {
			return rule.Action, fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d", pod.Namespace, pod.Name, c.Type, rule.Action, i)
		}
	}
	return batchv1.PodFailurePolicyActionCount, ""
}

// matchExitCode finds the container that has failed with a matching exit code, containers
// before init containers.
func matchExitCode(r *batchv1.PodFailurePolicyOnExitCodesRequirement, st v1.PodStatus) *v1.ContainerStatus {
	for _, cs := range slices.Concat(st.ContainerStatuses, st.InitContainerStatuses) {
		t := cs.State.Terminated
		if t == nil || t.ExitCode == 0 || r.ContainerName != nil && *r.ContainerName != cs.Name {
			continue
		}
		if slices.Contains(r.Values, t.ExitCode) == (r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
			return &cs
		}
	}
	return nil
}

func matchCondition(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, st v1.PodStatus) *v1.PodCondition {
	for _, p := range patterns {
		for _, c := range st.Conditions {
			if c.Type == p.Type && c.Status == p.Status {
				return &c
			}
		}
	}
	return nil
}
