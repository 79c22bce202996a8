package nodeinfo

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/runonce/runonce/internal/podspec"
)

// limits are those of a container in which this process runs; the largest int64 stands for none.
type limits struct {
	milliCPU  int64
	memory    int64
	available int64
}

// hierarchy is a mounted hierarchy of cgroups.
type hierarchy struct {
	mount string // path of the mount point, without the leading slash
	v2    bool
}

// readLimits returns the limits of the topmost cgroups that are visible, in either version of cgroups:
// those of pods are directly below. That of this process, such as a service's, is beside them.
func readLimits(fsys fs.FS) (limits, error) {
	l := limits{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	cpu, memory, err := hierarchies(fsys)
	if err != nil {
		return l, fmt.Errorf("reading the limits of this process: %w", err)
	}
	if cpu != nil {
		l.milliCPU = cpuLimit(fsys, cpu.mount, cpu.v2)
	}
	if memory != nil {
		l.memory, l.available = memoryLimit(fsys, memory.mount, memory.v2)
	}
	return l, nil
}

// cgroups returns a process's cgroup by controller, from its file in /proc; the name is empty for
// version 2.
func cgroups(fsys fs.FS, file string) (map[string]string, error) {
	data, err := fs.ReadFile(fsys, file)
	if err != nil {
		return nil, err
	}
	return podspec.ParseCgroups(string(data)), nil
}

// hierarchies finds where the cpu and the memory controller are mounted, nil for nowhere. Version 1 wins: a
// controller that is mounted there does not work in version 2.
func hierarchies(fsys fs.FS) (cpu, memory *hierarchy, err error) {
	own, err := cgroups(fsys, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	data, err := fs.ReadFile(fsys, "proc/self/mountinfo")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	infos, err := mountinfo.GetMountsFromReader(bytes.NewReader(data), mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, nil, err
	}
	mounts := map[string]*hierarchy{}
	for _, mount := range infos {
		controllers := strings.Split(mount.VFSOptions, ",")
		if mount.FSType == "cgroup2" {
			controllers = []string{""}
		}
		for _, controller := range controllers {
			if _, member := own[controller]; member && mounts[controller] == nil {
				mounts[controller] = &hierarchy{mount: strings.TrimPrefix(path.Clean(mount.Mountpoint), "/"), v2: mount.FSType == "cgroup2"}
			}
		}
	}
	return cmp.Or(mounts["cpu"], mounts[""]), cmp.Or(mounts["memory"], mounts[""]), nil
}

// cpuLimit returns the processor time that a cgroup allows, in thousandths.
func cpuLimit(fsys fs.FS, dir string, v2 bool) int64 {
	quota, period := line(fsys, dir+"/cpu.cfs_quota_us"), line(fsys, dir+"/cpu.cfs_period_us")
	if v2 {
		quota, period, _ = strings.Cut(line(fsys, dir+"/cpu.max"), " ")
	}
	q, err := strconv.ParseInt(quota, 10, 64)
	if err != nil || q <= 0 || q > math.MaxInt64/1000 {
		return math.MaxInt64 // "max", -1 or no such file
	}
	p, err := strconv.ParseInt(period, 10, 64)
	if err != nil || p <= 0 {
		return math.MaxInt64
	}
	return max(q*1000/p, 1)
}

// memoryLimit returns the memory that a cgroup allows, and how much of it is available: what
// is not in its working set.
func memoryLimit(fsys fs.FS, dir string, v2 bool) (limit, free int64) {
	limitFile := "/memory.limit_in_bytes"
	if v2 {
		limitFile = "/memory.max"
	}
	limit, err := strconv.ParseInt(line(fsys, dir+limitFile), 10, 64)
	if err != nil || limit <= 0 {
		return math.MaxInt64, math.MaxInt64
	}
	return limit, max(limit-workingSet(fsys, dir, v2), 0)
}

// workingSet returns the memory that a cgroup uses, as the kubelet counts it; 0 if it is not known.
func workingSet(fsys fs.FS, dir string, v2 bool) int64 {
	usageFile, inactive := "/memory.usage_in_bytes", "total_inactive_file "
	if v2 {
		usageFile, inactive = "/memory.current", "inactive_file "
	}
	usage, err := strconv.ParseInt(line(fsys, dir+usageFile), 10, 64)
	if err != nil || usage < 0 {
		return 0
	}
	if data, err := fs.ReadFile(fsys, dir+"/memory.stat"); err == nil {
		for l := range bytes.Lines(data) {
			if rest, ok := strings.CutPrefix(string(l), inactive); ok {
				if n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); err == nil && n > 0 {
					usage = max(usage-n, 0)
				}
			}
		}
	}
	return usage
}
