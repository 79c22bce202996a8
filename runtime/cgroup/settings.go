package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	godbus "github.com/godbus/dbus/v5"

	"github.com/coreos/go-systemd/v22/dbus"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/ocispec"
)

// percent is the quota for a hundredth of a CPU, the finest that systemd has.
const percent = ocispec.QuotaPeriod / 100

// LimitPids limits the processes of each pod; a limit that is not positive means none.
func (t *Tree) LimitPids(n int64) error {
	if n > 0 && t.dirs["pids"] == "" {
		return errors.New("limiting the processes of pods: controller pids is not mounted")
	}
	t.pidsLimit = max(n, 0)
	return nil
}

// limits returns the limits of the pod's cgroup.
func limits(pod *v1.Pod, at location) ocispec.Limits {
	l := ocispec.PodLimits(pod)
	if at.slice != "" {
		// Rounded up to what systemd can express, as runc does for containers.
		l.Quota = (l.Quota + percent - 1) / percent * percent
	}
	return l
}

// setting is a value for a file of a cgroup.
type setting struct {
	controller, file, value string
}

// settings returns the limits of the pod's cgroup, in the order to write them.
func (t Tree) settings(pod *v1.Pod, at location) []setting {
	l := limits(pod, at)
	list := []setting{{"cpu", t.sharesFile(), strconv.FormatUint(t.fileShares(l.Shares), 10)}}
	switch {
	case l.Quota > 0 && t.V2:
		list = append(list, setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", l.Quota, ocispec.QuotaPeriod)})
	case l.Quota > 0:
		list = append(list,
			setting{"cpu", "cpu.cfs_period_us", strconv.Itoa(ocispec.QuotaPeriod)},
			setting{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(l.Quota, 10)})
	}
	memoryFile, hugePagesFile := "memory.limit_in_bytes", "hugetlb.%s.limit_in_bytes"
	if t.V2 {
		memoryFile, hugePagesFile = "memory.max", "hugetlb.%s.max"
	}
	if l.Memory > 0 {
		list = append(list, setting{"memory", memoryFile, strconv.FormatInt(l.Memory, 10)})
	}
	if t.pidsLimit > 0 && t.dirs["pids"] != "" {
		list = append(list, setting{"pids", "pids.max", strconv.FormatInt(t.pidsLimit, 10)})
	}
	if t.dirs["hugetlb"] != "" {
		for _, size := range t.HugePages {
			file := fmt.Sprintf(hugePagesFile, ocispec.PageSizeName(size))
			list = append(list, setting{"hugetlb", file, strconv.FormatInt(l.HugePages[size], 10)})
		}
	}
	return list
}

// properties returns the limits of the pod's slice: the same as settings, since systemd sets
// them again when it reloads its units.
func (t Tree) properties(pod *v1.Pod, at location) []dbus.Property {
	l := limits(pod, at)
	io, memory := "BlockIOAccounting", "MemoryLimit"
	if t.V2 {
		io, memory = "IOAccounting", "MemoryMax"
	}
	list := []dbus.Property{
		// The controllers must be enabled before the first process starts.
		property("CPUAccounting", true),
		property("MemoryAccounting", true),
		property("TasksAccounting", true),
		property(io, true),
		t.sharesProperty(l.Shares),
	}
	if l.Quota > 0 {
		const usec = 1_000_000 / ocispec.QuotaPeriod
		list = append(list, property("CPUQuotaPerSecUSec", uint64(l.Quota)*usec))
	}
	if l.Memory > 0 {
		list = append(list, property(memory, uint64(l.Memory)))
	}
	if t.pidsLimit > 0 {
		list = append(list, property("TasksMax", uint64(t.pidsLimit)))
	}
	return list
}

// property is a setting of a unit: see systemd.resource-control(5) and its names on D-Bus.
func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

// sharesFile returns the file with a cgroup's share of the CPU.
func (t Tree) sharesFile() string {
	if t.V2 {
		return "cpu.weight"
	}
	return "cpu.shares"
}

// sharesProperty returns the property of a slice that stands for sharesFile.
func (t Tree) sharesProperty(shares uint64) dbus.Property {
	if t.V2 {
		return property("CPUWeight", t.fileShares(shares))
	}
	return property("CPUShares", shares)
}

// fileShares converts cpu.shares to what is in sharesFile.
func (t Tree) fileShares(shares uint64) uint64 {
	if t.V2 {
		return podspec.SharesToWeight(shares)
	}
	return shares
}

// writeFile writes to a file that must exist: which ones a cgroup has depends on the kernel's
// configuration.
func writeFile(name, value string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(value); err != nil {
		_ = f.Close()
		return fmt.Errorf("setting %q: %w", value, err)
	}
	return f.Close()
}
