package nodeinfo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// limits are those that the cgroups of this process set; the largest int64 stands for none.
type limits struct {
	milliCPU  int64
	memory    int64
	available int64
}

// hierarchy is a mounted hierarchy of cgroups and the position of this process in it.
type hierarchy struct {
	mount string // path of the mount point, without the leading slash
	own   string // path of the process's cgroup below it, beginning with a slash
	v2    bool
}

// readLimits returns the tightest limits of the process's cgroups and of all visible ones
// above them, in either version of cgroups.
func readLimits(fsys fs.FS) (limits, error) {
	l := limits{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	own, err := cgroups(fsys, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	cpu, memory, err := hierarchies(fsys, own)
	if err != nil {
		return l, err
	}
	for dir := range cpu.upwards() {
		l.milliCPU = min(l.milliCPU, cpuLimit(fsys, dir, cpu.v2))
	}
	for dir := range memory.upwards() {
		limit, free := memoryLimit(fsys, dir, memory.v2)
		l.memory, l.available = min(l.memory, limit), min(l.available, free)
	}
	return l, nil
}

// cgroups returns a process's cgroup by controller, from its file in /proc; the name is empty for
// version 2.
func cgroups(fsys fs.FS, file string) (map[string]string, error) {
	data, err := fs.ReadFile(fsys, file)
	if err != nil {
		return nil, fmt.Errorf("reading the limits of this process: %w", err)
	}
	all := map[string]string{}
	for l := range bytes.Lines(data) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(string(l), "\n"), ":")
		controllers, dir, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || !strings.HasPrefix(dir, "/") {
			continue
		}
		for name := range strings.SplitSeq(controllers, ",") {
			all[name] = dir
		}
	}
	return all, nil
}

// hierarchies finds where the cpu and the memory controller are mounted. Version 1 wins: a
// controller that is mounted there does not work in version 2.
func hierarchies(fsys fs.FS, own map[string]string) (cpu, memory *hierarchy, err error) {
	data, err := fs.ReadFile(fsys, "proc/self/mountinfo")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the limits of this process: %w", err)
	}
	infos, err := mountinfo.GetMountsFromReader(bytes.NewReader(data), mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the limits of this process: %w", err)
	}
	mounts := map[string]*hierarchy{}
	for _, mount := range infos {
		controllers := strings.Split(mount.VFSOptions, ",")
		if mount.FSType == "cgroup2" {
			controllers = []string{""}
		}
		for _, controller := range controllers {
			if dir, member := own[controller]; member && mounts[controller] == nil {
				mounts[controller] = at(mount, dir)
			}
		}
	}
	cpu, memory = mounts["cpu"], mounts["memory"]
	if cpu == nil {
		cpu = mounts[""]
	}
	if memory == nil {
		memory = mounts[""]
	}
	return cpu, memory, nil
}

// at returns the position of a cgroup below the mount. One outside of what is mounted, as in a
// container without its own cgroup namespace, counts as the root of the mount.
func at(m *mountinfo.Info, dir string) *hierarchy {
	own, inside := strings.CutPrefix(dir, strings.TrimSuffix(m.Root, "/"))
	if !inside || own != "" && !strings.HasPrefix(own, "/") || strings.HasPrefix(own, "/..") {
		own = "/"
	}
	return &hierarchy{mount: strings.TrimPrefix(path.Clean(m.Mountpoint), "/"), own: path.Clean("/" + own), v2: m.FSType == "cgroup2"}
}

// upwards yields the directories of the cgroup and of all cgroups above it.
func (h *hierarchy) upwards() func(func(string) bool) {
	return func(yield func(string) bool) {
		if h == nil {
			return
		}
		for dir := h.own; ; dir = path.Dir(dir) {
			if !yield(path.Join(h.mount, dir)) || dir == "/" {
				return
			}
		}
	}
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
// is not in its working set, as the kubelet counts it.
func memoryLimit(fsys fs.FS, dir string, v2 bool) (limit, free int64) {
	limitFile, usageFile, inactive := "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "
	if v2 {
		limitFile, usageFile, inactive = "/memory.max", "/memory.current", "inactive_file "
	}
	limit, err := strconv.ParseInt(line(fsys, dir+limitFile), 10, 64)
	if err != nil || limit <= 0 {
		return math.MaxInt64, math.MaxInt64
	}
	usage, err := strconv.ParseInt(line(fsys, dir+usageFile), 10, 64)
	if err != nil || usage < 0 {
		return limit, limit
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
	return limit, max(limit-usage, 0)
}
