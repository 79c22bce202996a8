package predicates

import (
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
)

// safeSysctls are the sysctls that are the pod's own and harm no other pod, and the
// kernel since which that is so (pkg/kubelet/sysctl/safe_sysctls.go).
var safeSysctls = map[string][2]int{
	"kernel.shm_rmid_forced":              {},
	"net.ipv4.ip_local_port_range":        {},
	"net.ipv4.tcp_syncookies":             {},
	"net.ipv4.ping_group_range":           {},
	"net.ipv4.ip_unprivileged_port_start": {},
	"net.ipv4.ip_local_reserved_ports":    {3, 16},
	"net.ipv4.tcp_keepalive_time":         {4, 5},
	"net.ipv4.tcp_keepalive_intvl":        {4, 5},
	"net.ipv4.tcp_keepalive_probes":       {4, 5},
	"net.ipv4.tcp_fin_timeout":            {4, 6},
	"net.ipv4.tcp_notsent_lowat":          {4, 6},
	"net.ipv4.tcp_rmem":                   {4, 15},
	"net.ipv4.tcp_wmem":                   {4, 15},
	"net.ipv4.tcp_slow_start_after_idle":  {4, 15},
}

// forbiddenSysctl returns why the pod's sysctls are refused, or nil.
func forbiddenSysctl(pod *v1.Pod, kernel string, unsafe []string) *Reason {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		if fault := sysctlFault(pod, s.Name, kernel, unsafe); fault != "" {
			return &Reason{"SysctlForbidden", "forbidden sysctl: " + fault}
		}
	}
	return nil
}

func sysctlFault(pod *v1.Pod, name, kernel string, unsafe []string) string {
	name = sysctl.NormalizeName(name)
	namespace := sysctlNamespace(name, kernel, unsafe)
	hostUsers := pod.Spec.HostUsers == nil || *pod.Spec.HostUsers
	switch {
	case namespace == sysctl.UnknownNamespace:
		return fmt.Sprintf("%q not allowlisted", name)
	case namespace == sysctl.NetNamespace && pod.Spec.HostNetwork,
		namespace == sysctl.IPCNamespace && pod.Spec.HostIPC,
		namespace == sysctl.UserNamespace && hostUsers:
		return fmt.Sprintf("%q not allowed with host %s enabled", name, namespace)
	}
	return ""
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

// kernelAtLeast compares a release like 6.1.0-18-amd64 with a version. One that is not
// known is taken for a new one.
func kernelAtLeast(release string, since [2]int) bool {
	major, rest, _ := strings.Cut(release, ".")
	minor := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		minor = rest[:end]
	}
	a, err := strconv.Atoi(major)
	if err != nil {
		return true
	}
	b, err := strconv.Atoi(minor)
	if err != nil {
		return true
	}
	return a > since[0] || a == since[0] && b >= since[1]
}

// Namespaced says whether a sysctl, or all that a pattern ending in * stands for, is known
// to belong to a namespace that a pod can have of its own.
func Namespaced(name string) bool {
	namespace, _, _ := sysctl.GetNamespace(name)
	return namespace != sysctl.UnknownNamespace
}
