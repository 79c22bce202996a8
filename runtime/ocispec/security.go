package ocispec

import (
	"cmp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// DefaultAppArmor is the name of the AppArmor profile that RuntimeDefault stands for, the
// same as under containerd's CRI plugin.
const DefaultAppArmor = "cri-containerd.apparmor.d"

// SecurityContext returns the container's security context, completed by the pod's
// (pkg/securitycontext.DetermineEffectiveSecurityContext). The deprecated annotations for
// AppArmor were turned into fields when the manifests were read.
func SecurityContext(pod *v1.Pod, c *v1.Container) v1.SecurityContext {
	var s v1.SecurityContext
	if c.SecurityContext != nil {
		s = *c.SecurityContext
	}
	if p := pod.Spec.SecurityContext; p != nil {
		s.SELinuxOptions = cmp.Or(s.SELinuxOptions, p.SELinuxOptions)
		s.SeccompProfile = cmp.Or(s.SeccompProfile, p.SeccompProfile)
		s.AppArmorProfile = cmp.Or(s.AppArmorProfile, p.AppArmorProfile)
		s.RunAsUser = cmp.Or(s.RunAsUser, p.RunAsUser)
		s.RunAsGroup = cmp.Or(s.RunAsGroup, p.RunAsGroup)
		s.RunAsNonRoot = cmp.Or(s.RunAsNonRoot, p.RunAsNonRoot)
	}
	return s
}

// Privileged reports whether the container is privileged.
func Privileged(c *v1.Container) bool {
	return c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
}

// SeccompProfile returns the container's seccomp profile, when it has none that of the host's
// containers; a privileged container never has one (pkg/kubelet/kuberuntime getSeccompProfile).
func (h *Host) SeccompProfile(pod *v1.Pod, c *v1.Container) v1.SeccompProfile {
	s := SecurityContext(pod, c)
	switch {
	case isTrue(s.Privileged):
		return v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}
	case s.SeccompProfile != nil:
		return *s.SeccompProfile
	case h.SeccompDefault:
		return v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}
	}
	return v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}
}

// AppArmorName returns the name of the AppArmor profile for the spec, "" for none. enabled
// says that the machine has AppArmor: there the default profile applies to all containers
// that name none and are not privileged (containerd's generateApparmorSpecOpts).
func AppArmorName(pod *v1.Pod, c *v1.Container, enabled bool) string {
	profile := v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	if p := SecurityContext(pod, c).AppArmorProfile; p != nil {
		profile = *p
	}
	switch {
	case profile.Type == v1.AppArmorProfileTypeLocalhost && profile.LocalhostProfile != nil:
		return *profile.LocalhostProfile
	case profile.Type == v1.AppArmorProfileTypeRuntimeDefault && enabled && !Privileged(c):
		return DefaultAppArmor
	}
	return ""
}

// SELinuxLabels returns the label of the container's process and that of its files, both
// empty without options. What the options leave out is as in the policy for containers
// (selinux.InitLabels of github.com/opencontainers/selinux); for files only the level can be
// set.
func SELinuxLabels(pod *v1.Pod, c *v1.Container) (process, file string) {
	o := SecurityContext(pod, c).SELinuxOptions
	if o == nil {
		return "", ""
	}
	level := cmp.Or(o.Level, "s0")
	process = strings.Join([]string{cmp.Or(o.User, "system_u"), cmp.Or(o.Role, "system_r"), cmp.Or(o.Type, "container_t"), level}, ":")
	return process, "system_u:object_r:container_file_t:" + level
}

// noNewPrivileges is set only when the manifest forbids escalation explicitly
// (securitycontext.AddNoNewPrivileges).
func noNewPrivileges(s *v1.SecurityContext) bool {
	return s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
}
