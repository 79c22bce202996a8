package probe

import (
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/ocispec"
)

// expandStatic replaces $(NAME) in a command by the literal values of the container's env, as
// the kubelet does for probes (ExpandContainerCommandOnlyStatic).
func expandStatic(command []string, env []v1.EnvVar) []string {
	values := make(map[string]string, len(env))
	for _, e := range env {
		values[e.Name] = e.Value
	}
	lookup := func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
	expanded := make([]string, 0, len(command))
	for _, c := range command {
		expanded = append(expanded, ocispec.Expand(c, lookup))
	}
	return expanded
}
