package runtime

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/spec"
)

// seccompProfile is the container's own profile, else the pod's; a privileged container
// has none (pkg/kubelet/kuberuntime getSeccompProfile).
func seccompProfile(pod *v1.Pod, c *v1.Container) *v1.SeccompProfile {
	switch {
	case privileged(c):
		return nil
	case c.SecurityContext != nil && c.SecurityContext.SeccompProfile != nil:
		return c.SecurityContext.SeccompProfile
	case pod.Spec.SecurityContext != nil:
		return pod.Spec.SecurityContext.SeccompProfile
	}
	return nil
}

func seccompType(pod *v1.Pod, c *v1.Container) v1.SeccompProfileType {
	if profile := seccompProfile(pod, c); profile != nil {
		return profile.Type
	}
	return v1.SeccompProfileTypeUnconfined
}

// localProfile is the path of the profile below the directory of profiles, "" when the
// container names none.
func localProfile(pod *v1.Pod, c *v1.Container) string {
	profile := seccompProfile(pod, c)
	if profile == nil || profile.Type != v1.SeccompProfileTypeLocalhost || profile.LocalhostProfile == nil {
		return ""
	}
	return *profile.LocalhostProfile
}

// readSeccomp reads a profile below dir.
func readSeccomp(dir, name string) (*specs.LinuxSeccomp, error) {
	path := filepath.Join(dir, filepath.Join("/", name))
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &spec.ConfigError{Why: ReasonCreateError, Err: fmt.Errorf("reading seccomp profile: %w", err)}
	}
	parsed := &specs.LinuxSeccomp{}
	if err := json.Unmarshal(data, parsed); err != nil {
		return nil, &spec.ConfigError{Why: ReasonCreateError, Err: fmt.Errorf("decoding seccomp profile %s: %w", path, err)}
	}
	return parsed, nil
}

func privileged(c *v1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}
