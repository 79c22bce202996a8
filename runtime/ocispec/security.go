package ocispec

import (
	v1 "k8s.io/api/core/v1"
)

// security is the pod's security context with the container's own fields put over it
// (pkg/securitycontext.DetermineEffectiveSecurityContext).
func security(pod *v1.Pod, c *v1.Container) v1.SecurityContext {
	var s v1.SecurityContext
	if p := pod.Spec.SecurityContext; p != nil {
		s.SELinuxOptions = p.SELinuxOptions
		s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot = p.RunAsUser, p.RunAsGroup, p.RunAsNonRoot
	}
	own := c.SecurityContext
	if own == nil {
		return s
	}
	s.SELinuxOptions = over(own.SELinuxOptions, s.SELinuxOptions)
	s.RunAsUser = over(own.RunAsUser, s.RunAsUser)
	s.RunAsGroup = over(own.RunAsGroup, s.RunAsGroup)
	s.RunAsNonRoot = over(own.RunAsNonRoot, s.RunAsNonRoot)
	s.Capabilities = own.Capabilities
	s.Privileged = own.Privileged
	s.ReadOnlyRootFilesystem = own.ReadOnlyRootFilesystem
	s.AllowPrivilegeEscalation = own.AllowPrivilegeEscalation
	s.ProcMount = own.ProcMount
	return s
}

func over[T any](own, otherwise *T) *T {
	if own != nil {
		return own
	}
	return otherwise
}

// noNewPrivileges is so only when the manifest forbids escalation outright
// (securitycontext.AddNoNewPrivileges).
func noNewPrivileges(s *v1.SecurityContext) bool {
	return s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
}
