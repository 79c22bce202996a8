package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroup holds the limits of this container's cgroup, as far as /sys/fs/cgroup shows them.
// Limits are numbers or "max"; those the kernel does not support are absent.
type cgroup struct {
	Version           int            `json:"version"`
	Paths             []string       `json:"paths"`                       // /proc/self/cgroup
	MemoryLimit       any            `json:"memoryLimit,omitempty"`       // bytes
	SwapLimit         any            `json:"swapLimit,omitempty"`         // bytes, memory not counted
	MemoryReservation any            `json:"memoryReservation,omitempty"` // bytes: soft limit, or low
	MemoryMin         any            `json:"memoryMin,omitempty"`         // bytes; version 2
	MemoryHigh        any            `json:"memoryHigh,omitempty"`        // bytes; version 2
	CPUMillis         any            `json:"cpuMillis,omitempty"`         // thousandths of a CPU that the quota allows
	CPUPeriod         any            `json:"cpuPeriod,omitempty"`         // microseconds
	CPUShares         any            `json:"cpuShares,omitempty"`         // version 1
	CPUWeight         any            `json:"cpuWeight,omitempty"`         // on version 1 converted from shares with the kubelet's formula
	Pids              any            `json:"pids,omitempty"`
	CPUs              string         `json:"cpus,omitempty"` // of cpuset
	Hugepages         map[string]any `json:"hugepages,omitempty"`
}

const cgroupRoot = "/sys/fs/cgroup"

func limits() cgroup {
	c := cgroup{Version: 1, Paths: fields("/proc/self/cgroup"), Hugepages: map[string]any{}}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		c.Version = 2
		c.unified()
		return c
	}
	c.MemoryLimit = limit("memory/memory.limit_in_bytes")
	c.MemoryReservation = limit("memory/memory.soft_limit_in_bytes")
	if both := limit("memory/memory.memsw.limit_in_bytes"); both != nil {
		c.SwapLimit = both
		all, known := both.(int64)
		if memory, ok := c.MemoryLimit.(int64); ok && known {
			c.SwapLimit = all - memory
		}
	}
	c.CPUPeriod = limit("cpu/cpu.cfs_period_us")
	c.CPUMillis = millis(limit("cpu/cpu.cfs_quota_us"), c.CPUPeriod)
	c.CPUShares = limit("cpu/cpu.shares")
	if shares, ok := c.CPUShares.(int64); ok {
		c.CPUWeight = 1 + (shares-2)*9999/262142
	}
	c.Pids = limit("pids/pids.max")
	c.CPUs = read(filepath.Join(cgroupRoot, "cpuset/cpuset.cpus"))
	c.hugepages("hugetlb/hugetlb.*.limit_in_bytes")
	return c
}

func (c *cgroup) unified() {
	c.MemoryLimit, c.SwapLimit = limit("memory.max"), limit("memory.swap.max")
	c.MemoryReservation, c.MemoryMin, c.MemoryHigh = limit("memory.low"), limit("memory.min"), limit("memory.high")
	if quota, period, ok := strings.Cut(read(filepath.Join(cgroupRoot, "cpu.max")), " "); ok {
		c.CPUPeriod = number(period)
		c.CPUMillis = millis(number(quota), c.CPUPeriod)
	}
	c.CPUWeight, c.Pids = limit("cpu.weight"), limit("pids.max")
	c.CPUs = read(filepath.Join(cgroupRoot, "cpuset.cpus.effective"))
	c.hugepages("hugetlb.*.max")
}

func (c *cgroup) hugepages(pattern string) {
	files, _ := filepath.Glob(filepath.Join(cgroupRoot, pattern))
	for _, f := range files {
		name := strings.Split(filepath.Base(f), ".")
		if len(name) == 3 {
			c.Hugepages[name[1]] = number(read(f))
		}
	}
}

func limit(name string) any { return number(read(filepath.Join(cgroupRoot, name))) }

// number returns nil for an empty text, "max" for no limit (in either version), and otherwise
// an int64.
func number(text string) any {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text == "":
		return nil
	case err != nil || n < 0 || n >= 1<<62:
		return "max"
	}
	return n
}

func millis(quota, period any) any {
	q, ok := quota.(int64)
	p, known := period.(int64)
	if !ok || !known || p == 0 {
		return quota
	}
	return q * 1000 / p
}
