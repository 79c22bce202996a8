// Package profile says which security profiles of the kernel a container is to run under.
package profile

import (
	v1 "k8s.io/api/core/v1"
)

// DefaultAppArmor is the name of the AppArmor profile that RuntimeDefault stands for, the
// same as under containerd's CRI plugin.
const DefaultAppArmor = "cri-containerd.apparmor.d"

// Seccomp is the container's own profile, else the pod's; a privileged container has none
// (pkg/kubelet/kuberuntime getSeccompProfile). Nil is Unconfined.
func Seccomp(pod *v1.Pod, c *v1.Container) *v1.SeccompProfile {
	switch {
	case Privileged(c):
		return nil
	case c.SecurityContext != nil && c.SecurityContext.SeccompProfile != nil:
		return c.SecurityContext.SeccompProfile
	case pod.Spec.SecurityContext != nil:
		return pod.Spec.SecurityContext.SeccompProfile
	}
	return nil
}

// SeccompType is the type of the profile that Seccomp returns.
func SeccompType(pod *v1.Pod, c *v1.Container) v1.SeccompProfileType {
	if p := Seccomp(pod, c); p != nil {
		return p.Type
	}
	return v1.SeccompProfileTypeUnconfined
}

// LocalSeccomp is the path of the profile below the directory of profiles, "" when the
// container names none.
func LocalSeccomp(pod *v1.Pod, c *v1.Container) string {
	p := Seccomp(pod, c)
	if p == nil || p.Type != v1.SeccompProfileTypeLocalhost || p.LocalhostProfile == nil {
		return ""
	}
	return *p.LocalhostProfile
}

// AppArmor is the container's own profile, else the pod's; nil when neither names one
// (pkg/kubelet/kuberuntime getAppArmorProfile). The annotations of old have become fields
// when the manifests were read.
func AppArmor(pod *v1.Pod, c *v1.Container) *v1.AppArmorProfile {
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		return c.SecurityContext.AppArmorProfile
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.AppArmorProfile
	}
	return nil
}

// AppArmorName is the name of the profile that the kernel is to be given, "" for none.
// enabled says that the machine has AppArmor: there the default one is for all that name
// none and are not privileged (containerd's generateApparmorSpecOpts).
func AppArmorName(pod *v1.Pod, c *v1.Container, enabled bool) string {
	kind, name := v1.AppArmorProfileTypeRuntimeDefault, ""
	if p := AppArmor(pod, c); p != nil {
		kind = p.Type
		if p.LocalhostProfile != nil {
			name = *p.LocalhostProfile
		}
	}
	switch {
	case kind == v1.AppArmorProfileTypeLocalhost:
		return name
	case kind == v1.AppArmorProfileTypeRuntimeDefault && enabled && !Privileged(c):
		return DefaultAppArmor
	}
	return ""
}

// Privileged says whether the container may do all that the machine may.
func Privileged(c *v1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}
