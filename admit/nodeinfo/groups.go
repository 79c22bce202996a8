package nodeinfo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/runonce/runonce/internal/podspec"
)

// The kinds of groups.
const (
	KindPod       = "pod"       // of a kubelet or of runonce
	KindContainer = "container" // of an engine such as docker, podman or CRI-O
	KindMachine   = "machine"   // registered with systemd-machined: systemd-nspawn's, virtual machines
)

// Group is a cgroup in which an engine runs something, with what that has reserved or uses.
type Group struct {
	Path     string // below the root of its hierarchy
	Kind     string
	MilliCPU int64 // thousandths of a processor
	Memory   int64 // bytes
}

// tree reads the cgroups of a machine.
type tree struct {
	fsys        fs.FS
	cpu, memory *hierarchy
	skip        func(path string) bool
	groups      map[string]Group
}

// Groups returns the groups of the machine that have processes, in order of their paths, without those that skip
// reports. A group in another one is part of that.
func Groups(fsys fs.FS, skip func(path string) bool) ([]Group, error) {
	cpu, memory, err := hierarchies(fsys)
	if err == nil && (cpu == nil || memory == nil) {
		err = errors.New("the controllers cpu and memory are not mounted")
	}
	if err != nil {
		return nil, fmt.Errorf("looking for other containers on this machine: %w", err)
	}
	t := &tree{fsys, cpu, memory, skip, map[string]Group{}}
	mounts := []string{cpu.mount, memory.mount}
	for _, mount := range slices.Compact(mounts) {
		if err := t.walk(mount, "/"); err != nil {
			return nil, fmt.Errorf("looking for other containers on this machine: %w", err)
		}
	}
	return slices.SortedFunc(maps.Values(t.groups), func(a, b Group) int { return cmp.Compare(a.Path, b.Path) }), nil
}

// walk looks for groups below the cgroup with the path.
func (t *tree) walk(mount, at string) error {
	below, err := children(t.fsys, mount+at)
	if err != nil {
		return err
	}
	for _, name := range below {
		p := path.Join(at, name)
		kind := kindOf(p)
		switch _, known := t.groups[p]; {
		case known || t.skip(p):
		case kind == "":
			if err := t.walk(mount, p); err != nil {
				return err
			}
		case populated(t.fsys, mount+p):
			t.groups[p] = Group{Path: p, Kind: kind, MilliCPU: t.milliCPU(p, kind), Memory: t.bytes(p, kind)}
		}
	}
	return nil
}

// children returns the names of the cgroups in the cgroup dir, none if it is gone.
func children(fsys fs.FS, dir string) (names []string, err error) {
	entries, err := fs.ReadDir(fsys, path.Clean(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// populated says whether the cgroup dir, or one below it, has a process.
func populated(fsys fs.FS, dir string) bool {
	if line(fsys, dir+"/cgroup.procs") != "" {
		return true
	}
	below, err := children(fsys, dir)
	return err == nil && slices.ContainsFunc(below, func(name string) bool { return populated(fsys, dir+"/"+name) })
}

var (
	// podName is how kubelets and runonce name the cgroup of a pod, with the cgroup drivers cgroupfs and systemd; a static
	// pod's UID has no hyphens.
	podName = regexp.MustCompile(`(^|-)pod[0-9a-f]{8}[-_]?([0-9a-f]{4}[-_]?){3}[0-9a-f]{12}(\.slice)?$`)
	// containerName ends in the ID of a container, which engines make of 64 digits.
	containerName = regexp.MustCompile(`(^|-)[0-9a-f]{64}(\.scope)?$`)
	// named are the cgroups in which containers have other names: containerd's, with its usual namespace, docker's
	// builds, and LXC's.
	named = regexp.MustCompile(`^/(default|docker|docker/buildkit|lxc)/[^/]+$|^/lxc\.payload\.[^/]+$`)
	// machineName is that of something registered with systemd-machined.
	machineName = regexp.MustCompile(`^/machine\.slice/.*\.(scope|service)$`)
)

// kindOf says what the cgroup with the path is by its name, "" for no group.
func kindOf(p string) string {
	name := path.Base(p)
	switch {
	case strings.Contains(name, "conmon"): // watches a container of podman or CRI-O
	case podName.MatchString(name):
		return KindPod
	case containerName.MatchString(name) || named.MatchString(p) && name != "buildkit":
		return KindContainer
	case machineName.MatchString(p):
		return KindMachine
	}
	return ""
}

// milliCPU returns the processor time that the group has reserved by its share. What it uses cannot be seen at
// one moment.
func (t *tree) milliCPU(p, kind string) int64 {
	file := "/cpu.shares"
	if t.cpu.v2 {
		file = "/cpu.weight"
	}
	shares, err := strconv.ParseUint(line(t.fsys, t.cpu.mount+p+file), 10, 64)
	if err != nil {
		return 0
	}
	switch {
	case t.cpu.v2 && kind == KindPod && strings.HasPrefix(p, "/kubepods"):
		shares = kubeletShares(shares)
	case t.cpu.v2:
		shares = podspec.WeightToShares(shares)
	}
	if shares <= podspec.MinShares || shares == podspec.DefaultShares && kind != KindPod {
		return 0
	}
	return int64((min(shares, podspec.MaxShares)*1000 + 1023) / 1024)
}

// kubeletShares returns the most shares for which a kubelet sets the weight (cm.getCPUWeight): not by the formula
// of the OCI runtimes.
func kubeletShares(weight uint64) uint64 {
	if weight <= 1 {
		return podspec.MinShares
	}
	return (min(weight, 10000)*(podspec.MaxShares-podspec.MinShares)-1)/9999 + podspec.MinShares
}

// bytes returns the memory that the group has reserved, or uses if that is more. The limit of a guaranteed pod
// is what it requests.
func (t *tree) bytes(p, kind string) int64 {
	dir := t.memory.mount + p
	files := []string{"/memory.soft_limit_in_bytes"}
	if t.memory.v2 {
		files = []string{"/memory.min", "/memory.low"}
	}
	most := workingSet(t.fsys, dir, t.memory.v2)
	for _, file := range files {
		if n, err := strconv.ParseInt(line(t.fsys, dir+file), 10, 64); err == nil && n < unlimited {
			most = max(most, n)
		}
	}
	if above := path.Dir(p); kind == KindPod && !strings.Contains(above, "burstable") && !strings.Contains(above, "besteffort") {
		if limit, _ := memoryLimit(t.fsys, dir, t.memory.v2); limit < unlimited {
			most = max(most, limit)
		}
	}
	return most
}

// unlimited is less than what version 1 shows where nothing is set: the largest int64 in whole pages.
const unlimited = math.MaxInt64 >> 1
