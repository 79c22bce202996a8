package runonce

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// matchFailurePolicy returns what the first rule that matches the failed pod asks for: matchPodFailurePolicy
// of pkg/controller/job/pod_failure_policy.go. Without one the failure counts.
func matchFailurePolicy(policy *batchv1.PodFailurePolicy, pod *v1.Pod, st v1.PodStatus) (batchv1.PodFailurePolicyAction, string) {
	if policy == nil {
		return batchv1.PodFailurePolicyActionCount, ""
	}
	for i, rule := range policy.Rules {
		switch {
		case rule.OnExitCodes != nil:
			if cs := exitMatches(rule.OnExitCodes, st); cs != nil {
				return rule.Action, fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d matching %s rule at index %d",
					cs.Name, pod.Namespace, pod.Name, cs.State.Terminated.ExitCode, rule.Action, i)
			}
		default:
			kind, ok := conditionMatches(rule.OnPodConditions, st)
			if !ok {
				continue
			}
			return rule.Action, fmt.Sprintf("Pod %s/%s has condition %s matching %s rule at index %d", pod.Namespace, pod.Name, kind, rule.Action, i)
		}
	}
	return batchv1.PodFailurePolicyActionCount, ""
}

// exitMatches finds the container that failed with a code that is asked for, containers
// before init containers.
func exitMatches(r *batchv1.PodFailurePolicyOnExitCodesRequirement, st v1.PodStatus) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			t := list[i].State.Terminated
			if t == nil || t.ExitCode == 0 || r.ContainerName != nil && *r.ContainerName != list[i].Name {
				continue
			}
			if slices.Contains(r.Values, t.ExitCode) == (r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return &list[i]
			}
		}
	}
	return nil
}

func conditionMatches(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, st v1.PodStatus) (v1.PodConditionType, bool) {
	for _, p := range patterns {
		for _, c := range st.Conditions {
			if c.Type == p.Type && c.Status == p.Status {
				return c.Type, true
			}
		}
	}
	return "", false
}
