// Package cgroup makes the cgroups of pods, the parents of their containers' cgroups, as
// the kubelet's cgroupfs driver does, on cgroup v1 and v2.
package cgroup

import (
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

	"github.com/runonce/runonce/runtime/spec/resources"
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

	// dirs maps a controller to the directory that its hierarchy is mounted at. In v2 all
	// are the same; in v1 there are also name=systemd and, on a hybrid machine, unified.
	dirs map[string]string
	// made remembers the cgroups that this process has made, by path; nil to not remember.
	made *sync.Map
}

// Ensure makes the pod's cgroup in every hierarchy, with the kubelet's limits, and returns
// its path below the cgroup root, such as /runonce/burstable/podUID. It is safe to repeat,
// and cheap then.
func (t Tree) Ensure(pod *v1.Pod) (string, error) {
	p := t.Path(pod)
	if t.known(p) {
		return p, nil
	}
	for _, dir := range t.hierarchies() {
		if err := t.makeIn(dir, p); err != nil {
			return "", fmt.Errorf("making cgroup %s: %w", p, err)
		}
	}
	for _, s := range t.settings(pod) {
		if err := writeFile(filepath.Join(t.dirs[s.controller], p, s.file), s.value); err != nil {
			return "", fmt.Errorf("limiting cgroup %s: %w", p, err)
		}
	}
	if err := t.weighClass(pod); err != nil {
		return "", fmt.Errorf("weighing cgroup %s: %w", path.Dir(p), err)
	}
	if t.made != nil {
		t.made.Store(p, true)
	}
	return p, nil
}

// known reports whether this process has made the cgroup and it is still there.
func (t Tree) known(p string) bool {
	if t.made == nil {
		return false
	}
	if _, ok := t.made.Load(p); !ok {
		return false
	}
	_, err := os.Stat(filepath.Join(t.dirs["cpu"], p))
	return err == nil
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
	// Another pod's Remove may take away an empty parent under our feet.
	for range raceTries {
		if err = t.makeAll(root, p); !gone(err) && !errors.Is(err, errIncomplete) {
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

// Path returns the path of the pod's cgroup below the cgroup root. Guaranteed pods are
// directly below the parent, others below the directory of their class.
func (t Tree) Path(pod *v1.Pod) string {
	leaf := "pod" + string(pod.UID)
	class := resources.QOS(pod)
	if class == v1.PodQOSGuaranteed {
		return path.Join(t.parent(), leaf)
	}
	return path.Join(t.parent(), strings.ToLower(string(class)), leaf)
}

func (t Tree) parent() string {
	if t.Parent == "" {
		return DefaultParent
	}
	return path.Join("/", t.Parent)
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

// makeAll makes the cgroup p and those above it in one hierarchy. In v2 each gets the
// controllers of the one above.
func (t Tree) makeAll(root, p string) error {
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
