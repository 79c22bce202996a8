package ocispec

import (
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// defaultCapabilities are those that containerd gives a container (pkg/oci/spec.go).
func defaultCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
	}
}

// allCapabilities are those of the kernel in order of their numbers, up to Linux 6.
func allCapabilities() []string {
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

// capabilities returns the bounding, permitted and effective set of the container:
// ALL in add, then ALL in drop, then single adds, then single drops (containerd's
// WithCapabilities). Names are taken with and without CAP_, in any case. held is what may
// be given at all; when it is nil that is everything.
func capabilities(s *v1.SecurityContext, held []string) (*specs.LinuxCapabilities, error) {
	if held == nil {
		held = allCapabilities()
	}
	set := defaultCapabilities()
	if isTrue(s.Privileged) {
		set = held
	}
	if c := s.Capabilities; c != nil && !isTrue(s.Privileged) {
		add, all, err := names(c.Add)
		if err != nil {
			return nil, err
		}
		drop, none, err := names(c.Drop)
		if err != nil {
			return nil, err
		}
		if all {
			set = held
		}
		if none {
			set = nil
		}
		set = append(slices.Clone(set), add...)
		set = slices.DeleteFunc(set, func(name string) bool { return slices.Contains(drop, name) })
	}
	set = unique(set)
	return &specs.LinuxCapabilities{Bounding: set, Permitted: slices.Clone(set), Effective: slices.Clone(set)}, nil
}

// names spells the capabilities as the kernel does and says whether ALL is among them.
func names(list []v1.Capability) (out []string, all bool, err error) {
	known := allCapabilities()
	for _, c := range list {
		name := strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_")
		if name == "ALL" {
			all = true
			continue
		}
		name = "CAP_" + name
		if !slices.Contains(known, name) {
			return nil, false, failure.CreateErrorf("unknown capability %q", c)
		}
		out = append(out, name)
	}
	return out, all, nil
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
