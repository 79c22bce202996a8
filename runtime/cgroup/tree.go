// Package cgroup makes the cgroups of pods, the parents of their containers' cgroups, as
// the kubelet's drivers cgroupfs and systemd do, on cgroup v1 and v2.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// DefaultParent is the cgroup that holds those of the pods. It is not the kubelet's
// "/kubepods": a kubelet on the same machine removes the pod cgroups there that it does
// not know.
const DefaultParent = "/runonce"

// Root is where cgroup file systems are mounted.
const Root = "/sys/fs/cgroup"

// raceTries bounds the repetitions when another pod removes the parent at the same time.
const raceTries = 10

// errIncomplete says that a cgroup cannot have children yet.
var errIncomplete = errors.New("the cgroup is not set up")

// required are the controllers without which requests and limits would be ignored.
func required() []string { return []string{"cpu", "memory"} }

// used are the controllers, besides the required ones, that runtimes put containers into
// and whose parents are therefore ours to make and remove.
func used() []string {
	return []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio", "io", "rdma", "misc", "perf_event", "net_cls", "net_prio"}
}

// Tree is the part of the cgroup hierarchy that belongs to pods. Its methods are safe for
// concurrent use on different pods.
type Tree struct {
	// V2 says that the controllers are in the unified hierarchy.
	V2 bool
	// Parent is the cgroup that holds those of the pods, DefaultParent when empty.
	Parent string
	// PidsLimit bounds the processes of a pod, 0 for no bound.
	PidsLimit int64
	// Options are those of the v2 mount that a mount of it in a container must repeat, since
	// the kernel has one set for all.
	Options []string
	// HugePages are the page sizes in bytes that the kernel can limit.
	HugePages []int64
	// Slices says that new pods are slices of systemd (the driver "systemd"). A pod that is
	// there already stays what it is.
	Slices bool
	// Units starts and stops slices.
	Units Units

	// dirs maps a controller to the directory that its hierarchy is mounted at. In v2 all
	// are the same; in v1 there are also name=systemd and, on a hybrid machine, unified.
	dirs map[string]string
	// made remembers the places that this process has made, by the pod's UID; nil to not
	// remember.
	made *sync.Map
}

// Ensure makes the pod's cgroup in every hierarchy, with the kubelet's limits, and returns
// what containers have for a parent: its path below the cgroup root, such as
// /runonce/burstable/podUID, or the name of its slice, as in the CRI's cgroup_parent. It is
// safe to repeat, and cheap then.
func (t Tree) Ensure(ctx context.Context, pod *v1.Pod) (string, error) {
	if at, ok := t.known(pod); ok {
		return at.parent(), nil
	}
	at := t.place(pod)
	if err := t.make(ctx, pod, at); err != nil {
		return "", fmt.Errorf("making cgroup %s: %w", at.path, err)
	}
	for _, s := range t.settings(pod, at) {
		if err := writeFile(filepath.Join(t.dirs[s.controller], at.path, s.file), s.value); err != nil {
			return "", fmt.Errorf("limiting cgroup %s: %w", at.path, err)
		}
	}
	if err := t.weighClass(ctx, pod, at); err != nil {
		return "", fmt.Errorf("weighing cgroup %s: %w", path.Dir(at.path), err)
	}
	if t.made != nil {
		t.made.Store(pod.UID, at)
	}
	return at.parent(), nil
}

// known reports whether this process has made the cgroup and it is still there.
func (t Tree) known(pod *v1.Pod) (place, bool) {
	if t.made == nil {
		return place{}, false
	}
	v, ok := t.made.Load(pod.UID)
	if !ok {
		return place{}, false
	}
	at, ok := v.(place)
	return at, ok && t.exists(at.path)
}

// make makes the cgroup in every hierarchy.
func (t Tree) make(ctx context.Context, pod *v1.Pod, at place) error {
	if at.slice != "" {
		release, err := t.startSlice(ctx, pod, at)
		if err != nil {
			return err
		}
		defer release()
	}
	for _, dir := range t.hierarchies() {
		var err error
		if at.slice != "" {
			// Systemd has made what it knows: neither all hierarchies nor, in v2, all controllers.
			err = t.makeAll(dir, at.path)
		} else {
			err = t.makeIn(dir, at.path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeIn makes the cgroup in one hierarchy: at once where those above it are complete, as
// for all pods but the first of a class.
func (t Tree) makeIn(root, p string) error {
	dir := filepath.Join(root, p)
	err := os.Mkdir(dir, 0o755)
	if err == nil || errors.Is(err, fs.ErrExist) {
		if err = t.complete(dir); err == nil {
			return nil
		}
	}
	return t.makeAll(root, p)
}

// makeAll makes the cgroup in one hierarchy after those above it.
func (t Tree) makeAll(root, p string) (err error) {
	// Another pod's Remove may take away an empty parent under our feet.
	for range raceTries {
		if err = t.makeEach(root, p); !gone(err) && !errors.Is(err, errIncomplete) {
			return err
		}
	}
	return err
}

// complete makes a new cgroup fit for the cgroups of containers.
func (t Tree) complete(dir string) error {
	if t.V2 {
		return t.delegate(dir)
	}
	if set, ok := t.dirs["cpuset"]; !ok || !strings.HasPrefix(dir, set+"/") {
		return nil
	}
	return inheritCPUSet(dir)
}

// gone reports whether err says that a cgroup was removed while it was worked on.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// hierarchies returns the mount points, each once, in order.
func (t Tree) hierarchies() []string {
	dirs := make([]string, 0, len(t.dirs))
	for _, d := range t.dirs {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// makeEach makes the cgroup p and those above it in one hierarchy. In v2 each gets the
// controllers of the one above.
func (t Tree) makeEach(root, p string) error {
	dir := root
	if t.V2 {
		if err := t.delegate(dir); err != nil {
			return err
		}
	}
	for name := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := t.complete(dir); err != nil {
			return err
		}
	}
	return nil
}

// delegate hands the controllers of a v2 cgroup on to its children.
func (t Tree) delegate(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	controllers := strings.Fields(string(data))
	if !has(controllers, required()) {
		return fmt.Errorf("%s has only the controllers %q: %w", dir, controllers, errIncomplete)
	}
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	var missing []string
	for _, c := range controllers {
		if slices.Contains(used(), c) && !slices.Contains(strings.Fields(string(have)), c) {
			missing = append(missing, c)
		}
	}
	for _, c := range missing {
		err := writeFile(filepath.Join(dir, "cgroup.subtree_control"), "+"+c)
		if err != nil && slices.Contains(required(), c) {
			return fmt.Errorf("enabling controller %s: %w", c, err)
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
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(above)) == "" {
			return fmt.Errorf("%s of the cgroup above %s is empty: %w", name, dir, errIncomplete)
		}
		if err := writeFile(filepath.Join(dir, name), string(above)); err != nil {
			return err
		}
	}
	return nil
}
