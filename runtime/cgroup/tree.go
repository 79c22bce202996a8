// Package cgroup creates the cgroups of pods, the parents of their containers' cgroups, as the
// kubelet's drivers cgroupfs and systemd do, on cgroup v1 and v2.
package cgroup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// DefaultParent is the cgroup that contains those of the pods. It is not the kubelet's
// "/kubepods": a kubelet on the same machine would remove pod cgroups there that it does
// not know.
const DefaultParent = "/runonce"

// ParentOf returns the cgroup for the pods of one of several roots on a machine.
func ParentOf(root string) string {
	sum := sha256.Sum256([]byte(root))
	return DefaultParent + "-" + hex.EncodeToString(sum[:4])
}

// Root is where cgroup file systems are mounted.
const Root = "/sys/fs/cgroup"

// raceTries bounds the repetitions when another pod removes the parent at the same time.
const raceTries = 10

// errIncomplete says that a cgroup cannot have children yet.
var errIncomplete = errors.New("the cgroup is not set up")

var (
	// required are the controllers without which requests and limits would be ignored.
	required = []string{"cpu", "memory"}
	// used are all controllers that OCI runtimes put containers into, so that we have to
	// create and remove their parents.
	used = []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio", "io", "rdma", "misc", "perf_event", "net_cls", "net_prio"}
)

// Tree is the part of the cgroup hierarchy that belongs to pods; Detect returns it. Its
// methods are safe for concurrent use on different pods.
type Tree struct {
	// V2 says that the controllers are in the unified hierarchy.
	V2 bool
	// Parent is the cgroup that contains those of the pods, DefaultParent when empty.
	Parent string
	// Options are those of the v2 mount that a mount of it in a container must repeat, since
	// the kernel has one set for all.
	Options []string
	// HugePages are the page sizes in bytes that the kernel can limit.
	HugePages []int64

	base      string // the container's cgroup that contains the parent, "" for the root
	pidsLimit int64  // of a pod's processes, 0 for none
	systemd   bool   // new pods are slices
	units     units
	// dirs maps a controller to the directory that its hierarchy is mounted at. In v2 all
	// are the same; in v1 there are also name=systemd and, on a hybrid machine, unified.
	dirs map[string]string
	// made remembers the locations that this process has created, by the pod's UID.
	made   *sync.Map
	shares *classShares
}

// Ensure creates the pod's cgroup in every hierarchy, with the kubelet's limits, and returns
// the parent for the cgroups of its containers: the path below the cgroup root, such as
// /runonce/burstable/podUID, or the name of the slice, as in the CRI's cgroup_parent. It is
// safe to repeat, and cheap then.
func (t Tree) Ensure(ctx context.Context, pod *v1.Pod) (string, error) {
	v, _ := t.made.Load(pod.UID)
	if at, ok := v.(location); ok && t.exists(at.path) {
		return at.parent(), nil
	}
	at := t.locate(pod)
	if err := t.create(ctx, pod, at); err != nil {
		return "", fmt.Errorf("creating cgroup %s: %w", at.path, err)
	}
	for _, s := range t.settings(pod, at) {
		if err := writeFile(filepath.Join(t.dirs[s.controller], at.path, s.file), s.value); err != nil {
			return "", fmt.Errorf("limiting cgroup %s: %w", at.path, err)
		}
	}
	if err := t.setClassShares(ctx, pod, at); err != nil {
		return "", fmt.Errorf("setting the CPU shares of cgroup %s: %w", path.Dir(at.path), err)
	}
	t.made.Store(pod.UID, at)
	return at.parent(), nil
}

// create creates the cgroup in every hierarchy.
func (t Tree) create(ctx context.Context, pod *v1.Pod, at location) error {
	if at.slice != "" {
		lock, err := t.startSlice(ctx, pod, at)
		if err != nil {
			return err
		}
		defer func() { _ = lock.Close() }()
	}
	for _, root := range t.hierarchies() {
		if err := t.createIn(root, at); err != nil {
			return err
		}
	}
	return nil
}

// createIn creates the cgroup in one hierarchy: first without those above it, which are
// complete for all pods but the first of a class. Those above a slice may not be: systemd
// makes only the hierarchies, and in v2 the controllers, that it knows.
func (t Tree) createIn(root string, at location) (err error) {
	for try := range raceTries {
		if try == 0 && at.slice == "" {
			err = t.createOne(filepath.Join(root, at.path))
		} else {
			err = t.createAll(root, at.path)
		}
		// Another pod's Remove may remove an empty parent at the same time.
		if !gone(err) && !errors.Is(err, errIncomplete) {
			return err
		}
	}
	return err
}

// createAll creates the cgroup p and those above it, up to the base, in one hierarchy. In v2 each gets
// the controllers of the one above.
func (t Tree) createAll(root, p string) error {
	dir := filepath.Join(root, t.base)
	if t.V2 {
		if err := vacate(dir); err != nil {
			return err
		}
		if err := t.delegate(dir); err != nil {
			return err
		}
	}
	for name := range strings.SplitSeq(strings.Trim(strings.TrimPrefix(p, t.base), "/"), "/") {
		dir = filepath.Join(dir, name)
		if err := t.createOne(dir); err != nil {
			return err
		}
	}
	return nil
}

// createOne creates a cgroup, if needed, and makes it ready for the cgroups of containers.
func (t Tree) createOne(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if t.V2 {
		return t.delegate(dir)
	}
	if set, ok := t.dirs["cpuset"]; ok && strings.HasPrefix(dir, set+"/") {
		return inheritCPUSet(dir)
	}
	return nil
}

// gone reports whether err says that a cgroup was removed while it was worked on.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// hierarchies returns the mount points, each once, in order.
func (t Tree) hierarchies() []string {
	return slices.Compact(slices.Sorted(maps.Values(t.dirs)))
}

// delegate enables the controllers of a v2 cgroup for its children.
func (t Tree) delegate(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	controllers := strings.Fields(string(data))
	if !containsAll(controllers, required) {
		return fmt.Errorf("%s has only the controllers %q: %w", dir, controllers, errIncomplete)
	}
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	enabled := strings.Fields(string(have))
	missing := slices.DeleteFunc(controllers, func(c string) bool { return !slices.Contains(used, c) || slices.Contains(enabled, c) })
	file := filepath.Join(dir, "cgroup.subtree_control")
	// All at once: who finds some of them takes the cgroup for complete.
	if len(missing) == 0 || writeFile(file, "+"+strings.Join(missing, " +")) == nil {
		return nil
	}
	for _, c := range missing {
		if err := writeFile(file, "+"+c); err != nil && slices.Contains(required, c) {
			return fmt.Errorf("enabling controller %s: %w", c, err)
		}
	}
	return nil
}

// vacated is the name of the cgroup with the processes that were in the one above it.
const vacated = "init"

// vacate moves the processes in a v2 cgroup into one below it, unless it is the root of the machine: that of a
// container gets no controllers for its children while it has processes.
func vacate(dir string) error {
	if isMachines(dir) {
		return nil
	}
	into := filepath.Join(dir, vacated)
	for range raceTries { // others start meanwhile
		pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || len(pids) == 0 {
			return err
		}
		if err := os.Mkdir(into, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for pid := range strings.FieldsSeq(string(pids)) {
			if err := writeFile(filepath.Join(into, "cgroup.procs"), pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("moving process %s into %s: %w", pid, into, err)
			}
		}
	}
	return nil
}

// inheritCPUSet gives a new v1 cpuset cgroup the CPUs and memory nodes of its parent:
// without them no process can enter it.
func inheritCPUSet(dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(own)) != "" {
			continue
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(above)) == "" {
			return fmt.Errorf("%s in the cgroup above %s is empty: %w", name, dir, errIncomplete)
		}
		if err := writeFile(filepath.Join(dir, name), string(above)); err != nil {
			return err
		}
	}
	return nil
}
