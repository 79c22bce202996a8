package admit

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"
)

// safeSysctls are the sysctls that are the pod's own and harm no other pod, and the
// kernel since which that is so (pkg/kubelet/sysctl/safe_sysctls.go).
var safeSysctls = map[string]string{
	"kernel.shm_rmid_forced":              "0.0",
	"net.ipv4.ip_local_port_range":        "0.0",
	"net.ipv4.tcp_syncookies":             "0.0",
	"net.ipv4.ping_group_range":           "0.0",
	"net.ipv4.ip_unprivileged_port_start": "0.0",
	"net.ipv4.ip_local_reserved_ports":    "3.16",
	"net.ipv4.tcp_keepalive_time":         "4.5",
	"net.ipv4.tcp_keepalive_intvl":        "4.5",
	"net.ipv4.tcp_keepalive_probes":       "4.5",
	"net.ipv4.tcp_fin_timeout":            "4.6",
	"net.ipv4.tcp_notsent_lowat":          "4.6",
	"net.ipv4.tcp_rmem":                   "4.15",
	"net.ipv4.tcp_wmem":                   "4.15",
	"net.ipv4.tcp_slow_start_after_idle":  "4.15",
}

// forbiddenSysctls returns why the first sysctl of the pod that is not allowed is rejected.
func forbiddenSysctls(pod *v1.Pod, kernel string, unsafe []string) []Reason {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	hostUsers := pod.Spec.HostUsers == nil || *pod.Spec.HostUsers
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := sysctl.NormalizeName(s.Name)
		switch namespace := sysctlNamespace(name, kernel, unsafe); {
		case namespace == sysctl.UnknownNamespace:
			return []Reason{{"SysctlForbidden", fmt.Sprintf("forbidden sysctl: %q not allowlisted", name)}}
		case namespace == sysctl.NetNamespace && pod.Spec.HostNetwork,
			namespace == sysctl.IPCNamespace && pod.Spec.HostIPC,
			namespace == sysctl.UserNamespace && hostUsers:
			return []Reason{{"SysctlForbidden", fmt.Sprintf("forbidden sysctl: %q not allowed with host %s enabled", name, namespace)}}
		}
	}
	return nil
}

// sysctlNamespace returns the namespace that an allowed sysctl belongs to, by its own
// name or by the pattern that allows it.
func sysctlNamespace(name, kernel string, unsafe []string) sysctl.Namespace {
	if since, ok := safeSysctls[name]; ok && kernelAtLeast(kernel, since) {
		namespace, _, _ := sysctl.GetNamespace(name)
		return namespace
	}
	for _, pattern := range unsafe {
		namespace, prefix, isPrefix := sysctl.GetNamespace(pattern)
		if name == prefix && !isPrefix || isPrefix && strings.HasPrefix(name, prefix) {
			return namespace
		}
	}
	return sysctl.UnknownNamespace
}

// kernelAtLeast compares a release like 6.1.0-18-amd64 with a version. An unknown release
// counts as new enough.
func kernelAtLeast(release, since string) bool {
	v, err := version.ParseGeneric(release)
	return err != nil || v.AtLeast(version.MustParseGeneric(since))
}

// ValidateSysctls returns the first error in a list of sysctls to allow: each sysctl, or
// pattern ending in *, has to be known to be namespaced, as the kubelet asks of its own flag.
func ValidateSysctls(unsafe []string) error {
	for _, s := range unsafe {
		if namespace, _, _ := sysctl.GetNamespace(s); namespace == sysctl.UnknownNamespace {
			return fmt.Errorf("sysctl %q: not known to be namespaced", s)
		}
	}
	return nil
}
