package podstate

import (
	"slices"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
)

// restarts says whether a container that does not run is started again: by its own rules,
// else its own policy, else the pod's (podutil.ContainerShouldRestart).
func restarts(pod *v1.Pod, def *v1.Container, c engine.Container) bool {
	if c.State == engine.StateCreated {
		return true
	}
	code := Ended(c).ExitCode
	if _, ok := ruleFor(def, code); ok {
		return true
	}
	return policy(pod, def) == v1.RestartPolicyAlways || (policy(pod, def) == v1.RestartPolicyOnFailure && code != 0)
}

// mayRestart says whether a container that a probe had killed is started again.
func mayRestart(pod *v1.Pod, def *v1.Container) bool {
	return policy(pod, def) != v1.RestartPolicyNever
}

// policy is the container's own restart policy, else the pod's.
func policy(pod *v1.Pod, def *v1.Container) v1.RestartPolicy {
	if def.RestartPolicy != nil {
		return v1.RestartPolicy(*def.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

// ruleFor returns the action of the first rule for the exit code, all of which start the
// container again (podutil.FindMatchingContainerRestartRule).
func ruleFor(def *v1.Container, code int32) (v1.ContainerRestartRuleAction, bool) {
	for _, rule := range def.RestartPolicyRules {
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

// CrashReset is how long a container must have run to have recovered from earlier crashes.
const CrashReset = 10 * time.Minute

// The kubelet's crash back-off (pkg/kubelet/kubelet.go, flowcontrol.Backoff).
const (
	crashBase = 10 * time.Second
	crashMax  = 300 * time.Second
)

// crashDelay is how long after its end a container that crashed quickly n times since it
// last ran well stays down: the first restart is immediate.
func crashDelay(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	d := crashBase
	for i := 2; i < n && d < crashMax; i++ {
		d *= 2
	}
	return min(d, crashMax)
}
