// Package host finds out what this machine and this process can give to containers: features of the kernel and of
// OCI runtimes, security profiles, devices. It also says which pods need something that is missing.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/ocispec"
)

// CapSysAdmin is the capability without which no container can be started.
const CapSysAdmin = "CAP_SYS_ADMIN"

// Lacking returns the capabilities that this process needs to start containers and lacks, as root of a container that is not
// privileged.
func Lacking(root fs.FS) ([]string, error) {
	status, err := ownStatus(root)
	if err != nil {
		return nil, err
	}
	effective, err := capabilitySet(status, "CapEff:")
	if err != nil {
		return nil, err
	}
	held, needed := names(effective), []string{CapSysAdmin, "CAP_NET_ADMIN", "CAP_CHOWN", "CAP_SETUID", "CAP_MKNOD"}
	return slices.DeleteFunc(needed, func(name string) bool { return slices.Contains(held, name) }), nil
}

// ownStatus returns the status of this process.
func ownStatus(root fs.FS) ([]byte, error) {
	status, err := fs.ReadFile(root, "proc/self/status")
	if err != nil {
		return nil, fmt.Errorf("reading the status of this process: %w", err)
	}
	return status, nil
}

// capSysResource allows a process to lower its oom_score_adj.
const capSysResource = 24

// Detect reads from the root file system what the machine and this process can give to containers.
func Detect(root fs.FS, cgroups cgroup.Tree) (ocispec.Host, error) {
	h := ocispec.Host{
		CgroupV2: cgroups.V2, CgroupOptions: cgroups.Options, HugePages: cgroups.HugePages,
		MinOOMScoreAdj: -1000, SwapLimit: swapLimit(root, cgroups.V2),
	}
	status, err := ownStatus(root)
	if err != nil {
		return h, err
	}
	bounding, err := capabilitySet(status, "CapBnd:")
	if err != nil {
		return h, err
	}
	effective, err := capabilitySet(status, "CapEff:")
	if err != nil {
		return h, err
	}
	h.Capabilities = names(bounding)
	if effective&(1<<capSysResource) == 0 {
		if h.MinOOMScoreAdj, err = oomScoreAdj(root); err != nil {
			return h, err
		}
	}
	cpus, err := fs.Glob(root, "sys/devices/system/cpu/cpu[0-9]*")
	if err != nil {
		return h, fmt.Errorf("counting CPUs: %w", err)
	}
	h.CPUs = len(cpus)
	return h, nil
}

// capabilitySet returns one of the sets of capabilities in a process's status.
func capabilitySet(status []byte, name string) (uint64, error) {
	_, rest, _ := strings.Cut(string(status), name)
	value, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the status of this process: %s %w", name, err)
	}
	return set, nil
}

func names(set uint64) []string {
	var held []string
	for i, name := range ocispec.AllCapabilities() {
		if set&(1<<i) != 0 {
			held = append(held, name)
		}
	}
	return held
}

func oomScoreAdj(root fs.FS) (int, error) {
	text, err := fs.ReadFile(root, "proc/self/oom_score_adj")
	if err != nil {
		return 0, fmt.Errorf("reading the oom_score_adj of this process: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("reading the oom_score_adj of this process: %w", err)
	}
	return n, nil
}

// Swap returns how many bytes of swap the machine has for containers, an error if it cannot say how much of
// it each may use.
func Swap(root fs.FS, h ocispec.Host) (int64, error) {
	switch {
	case !h.CgroupV2:
		return 0, errors.New("it needs cgroup v2, and this machine has cgroup v1")
	case !h.SwapLimit:
		return 0, errors.New("the kernel does not count the swap of cgroups (CONFIG_SWAP and no swapaccount=0)")
	}
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("reading the machine's swap: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), "SwapTotal:")
	value, _, _ := strings.Cut(rest, " kB\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the machine's swap: /proc/meminfo: SwapTotal: %w", err)
	}
	return kib << 10, nil
}

// swapLimit reports whether the kernel has swap accounting, which adds a file to cgroups.
func swapLimit(root fs.FS, v2 bool) bool {
	if !v2 {
		_, err := fs.Stat(root, "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
		return err == nil
	}
	// The root cgroup has no memory.swap.max, but the others have.
	if found, err := fs.Glob(root, "sys/fs/cgroup/*/memory.swap.max"); err == nil && len(found) > 0 {
		return true
	}
	if others, err := fs.Glob(root, "sys/fs/cgroup/*/memory.max"); err != nil || len(others) > 0 {
		return false
	}
	// There are no others yet, as on a machine without an init system. The kernel has the
	// file when it can swap, unless swap accounting is switched off.
	_, err := fs.Stat(root, "proc/swaps")
	line, _ := fs.ReadFile(root, "proc/cmdline")
	return err == nil && !slices.Contains(strings.Fields(string(line)), "swapaccount=0")
}
