// Package host looks at what this machine and this process can give to containers.
package host

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/runonce/runonce/internal/hugepages"
)

// Host is what the specs of containers need to know of the machine.
type Host struct {
	// SwapLimit says that the kernel can limit swap for each cgroup.
	SwapLimit bool
	// HugePages are the sizes in bytes of pages that the kernel can limit.
	HugePages []int64
	// Capabilities are those that this process can give, in order of their numbers.
	Capabilities []string
	// MinOOMScoreAdj is the lowest oom_score_adj that this process can give.
	MinOOMScoreAdj int
	// CPUs is the number of processors that the kernel has.
	CPUs int
}

// capSysResource lets a process lower its oom_score_adj.
const capSysResource = 24

// Detect reads the machine's state from the root file system. v2 says that the machine
// uses cgroup v2 alone.
func Detect(root fs.FS, v2 bool) (Host, error) {
	status, err := fs.ReadFile(root, "proc/self/status")
	if err != nil {
		return Host{}, fmt.Errorf("looking at this process: %w", err)
	}
	bounding, err := hexField(status, "CapBnd:")
	if err != nil {
		return Host{}, err
	}
	effective, err := hexField(status, "CapEff:")
	if err != nil {
		return Host{}, err
	}
	h := Host{Capabilities: names(bounding), MinOOMScoreAdj: -1000}
	if effective&(1<<capSysResource) == 0 {
		if h.MinOOMScoreAdj, err = oomScoreAdj(root); err != nil {
			return Host{}, err
		}
	}
	if hugetlb(root, v2) {
		if h.HugePages, err = hugepages.Sizes(root); err != nil {
			return Host{}, fmt.Errorf("listing huge pages: %w", err)
		}
	}
	if h.CPUs, err = cpus(root); err != nil {
		return Host{}, err
	}
	h.SwapLimit = swapLimit(root, v2)
	return h, nil
}

func hexField(status []byte, name string) (uint64, error) {
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return 0, fmt.Errorf("looking at this process: %s %w", name, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("looking at this process: no line %s in its status", name)
}

func names(set uint64) []string {
	var held []string
	for i, name := range capabilityNames() {
		if set&(1<<i) != 0 {
			held = append(held, "CAP_"+name)
		}
	}
	return held
}

func capabilityNames() []string {
	return strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
		LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO
		SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
		AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF
		CHECKPOINT_RESTORE`)
}

func oomScoreAdj(root fs.FS) (int, error) {
	text, err := fs.ReadFile(root, "proc/self/oom_score_adj")
	if err != nil {
		return 0, fmt.Errorf("looking at this process: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("looking at this process: oom_score_adj: %w", err)
	}
	return n, nil
}

// hugetlb says whether the kernel has the controller.
func hugetlb(root fs.FS, v2 bool) bool {
	if v2 {
		controllers, err := fs.ReadFile(root, "sys/fs/cgroup/cgroup.controllers")
		return err == nil && slices.Contains(strings.Fields(string(controllers)), "hugetlb")
	}
	_, err := fs.Stat(root, "sys/fs/cgroup/hugetlb")
	return err == nil
}

// cpus counts the processors that the kernel knows, online or not.
func cpus(root fs.FS) (int, error) {
	entries, err := fs.Glob(root, "sys/devices/system/cpu/cpu[0-9]*")
	if err != nil {
		return 0, fmt.Errorf("counting processors: %w", err)
	}
	return len(entries), nil
}

// swapLimit looks for the file that only a kernel with swap accounting has.
func swapLimit(root fs.FS, v2 bool) bool {
	if !v2 {
		_, err := fs.Stat(root, "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
		return err == nil
	}
	// The root cgroup has no memory.swap.max; any other one tells.
	if found, err := fs.Glob(root, "sys/fs/cgroup/*/memory.swap.max"); err == nil && len(found) > 0 {
		return true
	}
	if others, err := fs.Glob(root, "sys/fs/cgroup/*/memory.max"); err != nil || len(others) > 0 {
		return false
	}
	// There is no other one yet, as on a machine without an init system. The kernel has the
	// file when it can swap, unless it was told not to.
	_, err := fs.Stat(root, "proc/swaps")
	line, _ := fs.ReadFile(root, "proc/cmdline")
	return err == nil && !slices.Contains(strings.Fields(string(line)), "swapaccount=0")
}
