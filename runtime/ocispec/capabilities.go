package ocispec

import (
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// defaultCapabilities are the capabilities that containerd gives a container
// (pkg/oci/spec.go).
func defaultCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
	}
}

// AllCapabilities returns the kernel's capabilities in order of their numbers, up to Linux 6.
func AllCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN",
		"CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT",
		"CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
		"CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL",
		"CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND",
		"CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
	}
}

// capabilities returns the container's bounding, permitted and effective set: ALL in add,
// then ALL in drop, then single adds, then single drops (containerd's WithCapabilities).
// Names may have the prefix CAP_ or not, in any case. available are the capabilities that
// can be given; nil is all.
func capabilities(s *v1.SecurityContext, available []string) (*specs.LinuxCapabilities, error) {
	if available == nil {
		available = AllCapabilities()
	}
	set := defaultCapabilities()
	if isTrue(s.Privileged) {
		set = available
	} else if c := s.Capabilities; c != nil {
		add, addAll, err := capabilityNames(c.Add)
		if err != nil {
			return nil, err
		}
		drop, dropAll, err := capabilityNames(c.Drop)
		if err != nil {
			return nil, err
		}
		if addAll {
			set = available
		}
		if dropAll {
			set = nil
		}
		set = slices.DeleteFunc(slices.Concat(set, add), func(name string) bool { return slices.Contains(drop, name) })
	}
	set = unique(set)
	return &specs.LinuxCapabilities{Bounding: set, Permitted: slices.Clone(set), Effective: slices.Clone(set)}, nil
}

// capabilityNames spells the capabilities as the kernel does and reports whether ALL is
// among them.
func capabilityNames(list []v1.Capability) (names []string, all bool, err error) {
	known := AllCapabilities()
	for _, c := range list {
		name := "CAP_" + strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_")
		switch {
		case name == "CAP_ALL":
			all = true
		case slices.Contains(known, name):
			names = append(names, name)
		default:
			return nil, false, failure.CreateErrorf("unknown capability %q", c)
		}
	}
	return names, all, nil
}

// unique returns the list without duplicates, in order of first appearance.
func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
