package profile

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// SELinux is the container's own options, else the pod's; nil when neither has any.
func SELinux(pod *v1.Pod, c *v1.Container) *v1.SELinuxOptions {
	if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
		return c.SecurityContext.SELinuxOptions
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.SELinuxOptions
	}
	return nil
}

// SELinuxLabels are the label of the container's process and that of its files, both empty
// without options. What the options leave out is as in the policy for containers
// (selinux.InitLabels of github.com/opencontainers/selinux): of the file's label they set
// the level alone.
func SELinuxLabels(pod *v1.Pod, c *v1.Container) (process, file string) {
	o := SELinux(pod, c)
	if o == nil {
		return "", ""
	}
	or := func(given, otherwise string) string {
		if given == "" {
			return otherwise
		}
		return given
	}
	level := or(o.Level, "s0")
	process = strings.Join([]string{or(o.User, "system_u"), or(o.Role, "system_r"), or(o.Type, "container_t"), level}, ":")
	return process, strings.Join([]string{"system_u", "object_r", "container_file_t", level}, ":")
}
