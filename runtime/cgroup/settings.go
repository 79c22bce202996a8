package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/ocispec/resources"
)

// setting is a value to be written to a file of a cgroup.
type setting struct {
	controller, file, value string
}

// settings returns what the pod's cgroup is told, in the order to write it.
func (t Tree) settings(pod *v1.Pod, at place) []setting {
	limits := resources.ForPod(pod)
	if at.slice != "" {
		limits.Quota = wholePercents(limits.Quota)
	}
	var list []setting
	if t.V2 {
		list = settingsV2(limits)
	} else {
		list = settingsV1(limits)
	}
	if t.PidsLimit > 0 && t.dirs["pids"] != "" {
		list = append(list, setting{"pids", "pids.max", strconv.FormatInt(t.PidsLimit, 10)})
	}
	if t.dirs["hugetlb"] != "" {
		for _, size := range t.HugePages {
			list = append(list, setting{"hugetlb", hugePageFile(size, t.V2), strconv.FormatInt(limits.HugePages[size], 10)})
		}
	}
	return list
}

// LimitPids bounds the processes of each pod; a limit that is not positive is none.
func (t *Tree) LimitPids(n int64) error {
	if n > 0 && t.dirs["pids"] == "" {
		return errors.New("limiting the processes of pods: controller pids is not mounted")
	}
	t.PidsLimit = max(n, 0)
	return nil
}

func settingsV1(p resources.Limits) []setting {
	list := []setting{{"cpu", "cpu.shares", strconv.FormatUint(p.Shares, 10)}}
	if p.Quota > 0 {
		list = append(list,
			setting{"cpu", "cpu.cfs_period_us", strconv.Itoa(resources.QuotaPeriod)},
			setting{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(p.Quota, 10)})
	}
	if p.Memory > 0 {
		list = append(list, setting{"memory", "memory.limit_in_bytes", strconv.FormatInt(p.Memory, 10)})
	}
	return list
}

func settingsV2(p resources.Limits) []setting {
	list := []setting{{"cpu", "cpu.weight", strconv.FormatUint(resources.SharesToWeight(p.Shares), 10)}}
	if p.Quota > 0 {
		list = append(list, setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", p.Quota, resources.QuotaPeriod)})
	}
	if p.Memory > 0 {
		list = append(list, setting{"memory", "memory.max", strconv.FormatInt(p.Memory, 10)})
	}
	return list
}

func hugePageFile(size int64, v2 bool) string {
	if v2 {
		return "hugetlb." + resources.PageSizeName(size) + ".max"
	}
	return "hugetlb." + resources.PageSizeName(size) + ".limit_in_bytes"
}

// writeFile writes to a file that must exist: those of cgroups come and go with the
// kernel's configuration.
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
