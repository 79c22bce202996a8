package provider

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
)

// usage is what a container, a pod or the node has used.
type usage struct {
	cpu        time.Duration // of all processors, since the start
	memory     uint64        // bytes
	workingSet uint64        // bytes, without what the kernel can take back at once
}

func (u *usage) add(v usage) {
	u.cpu, u.memory, u.workingSet = u.cpu+v.cpu, u.memory+v.memory, u.workingSet+v.workingSet
}

// readUsage reads what the cgroup of a process has used. The working set is computed as by cAdvisor.
func readUsage(pid int) (usage, error) {
	if cgroups.Mode() == cgroups.Unified {
		return readUnified(pid)
	}
	// The other controllers are not read.
	hierarchy := func() ([]cgroup1.Subsystem, error) {
		all, err := cgroup1.Default()
		used := all[:0]
		for _, s := range all {
			if s.Name() == cgroup1.Cpuacct || s.Name() == cgroup1.Memory {
				used = append(used, s)
			}
		}
		return used, err
	}
	group, err := cgroup1.Load(cgroup1.PidPath(pid), cgroup1.WithHierarchy(hierarchy))
	if err != nil {
		return usage{}, fmt.Errorf("finding the cgroup of process %d: %w", pid, err)
	}
	m, err := group.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("reading the cgroup of process %d: %w", pid, err)
	}
	memory := m.GetMemory().GetUsage().GetUsage()
	return newUsage(time.Duration(m.GetCPU().GetUsage().GetTotal()), memory, m.GetMemory().GetTotalInactiveFile()), nil
}

func readUnified(pid int) (usage, error) {
	path, err := cgroup2.PidGroupPath(pid)
	if err != nil {
		return usage{}, fmt.Errorf("finding the cgroup of process %d: %w", pid, err)
	}
	group, err := cgroup2.Load(path)
	if err != nil {
		return usage{}, fmt.Errorf("finding the cgroup of process %d: %w", pid, err)
	}
	m, err := group.StatFiltered(cgroup2.StatCPU | cgroup2.StatMemory)
	if err != nil {
		return usage{}, fmt.Errorf("reading the cgroup of process %d: %w", pid, err)
	}
	return newUsage(time.Duration(m.GetCPU().GetUsageUsec())*time.Microsecond, m.GetMemory().GetUsage(), m.GetMemory().GetInactiveFile()), nil
}

func newUsage(cpu time.Duration, memory, inactive uint64) usage {
	return usage{cpu: cpu, memory: memory, workingSet: memory - min(memory, inactive)}
}

// tick is the unit of times in /proc/stat (USER_HZ), the same on all architectures of ours.
const tick = time.Second / 100

// machineUsage reads what the machine whose root is fsys has used (proc(5)).
func machineUsage(fsys fs.FS) (usage, error) {
	stat, err := fs.ReadFile(fsys, "proc/stat")
	if err != nil {
		return usage{}, fmt.Errorf("reading the CPU time of the machine: %w", err)
	}
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(string(stat), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return usage{}, fmt.Errorf("reading the CPU time of the machine: /proc/stat: %w", err)
	}
	meminfo, err := fs.ReadFile(fsys, "proc/meminfo")
	if err != nil {
		return usage{}, fmt.Errorf("reading the memory of the machine: %w", err)
	}
	memory := map[string]uint64{}
	for line := range strings.Lines(string(meminfo)) {
		var kib uint64
		name, rest, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscan(rest, &kib); err == nil {
			memory[name] = kib << 10
		}
	}
	total := memory["MemTotal"]
	return usage{
		cpu:    time.Duration(user+nice+system+irq+softirq+steal) * tick,
		memory: total - min(total, memory["MemFree"]), workingSet: total - min(total, memory["MemAvailable"]),
	}, nil
}
