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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// shimTimeout bounds the wait for shims that have been told to end, and then for those that were killed. They
// take up to three seconds for their last events and answers.
const shimTimeout = 5 * time.Second

// shims returns where the shims of the pods below the location are.
func (l location) shims() location {
	if l.slice == "" {
		return location{path: path.Join(l.path, "shims")}
	}
	scope := strings.TrimSuffix(l.slice, suffix) + "-shims.scope"
	return location{path: path.Join(l.path, scope), slice: scope}
}

// AdoptShim moves the shim of a pod that this process has called Ensure for out of the caller's cgroup: who
// stops or limits the service, the login session or the CI job of the caller does not mean the pods. The
// shims have a cgroup of their own, since they are not to use what is a pod's.
func (t Tree) AdoptShim(ctx context.Context, pod types.UID, pid int) error {
	parent, asSlice := t.below()
	v, _ := t.made.Load(pod)
	if of, _ := v.(location); of.slice != "" {
		parent = asSlice
	}
	at := parent.shims()
	err := t.enter(at.path, pid)
	// The end of another pod may remove it at the same time, and the start of one make it, of which a v1 cpuset has no
	// CPUs yet.
	for range raceTries {
		if !gone(err) && !errors.Is(err, unix.ENOSPC) {
			break
		}
		err = nil
		if at.slice != "" {
			err = t.units.StartScope(ctx, at.slice, parent.slice, pid)
		}
		if err == nil {
			err = t.createLeaf(at.path)
		}
		if err == nil {
			err = t.enter(at.path, pid)
		}
	}
	if err != nil {
		return fmt.Errorf("moving process %d into cgroup %s: %w", pid, at.path, err)
	}
	return nil
}

func isShims(name string) bool { return name == "shims" || strings.HasSuffix(name, "-shims.scope") }

// LeaveShims moves this process, if a shim has started it, out of the shims' cgroup, which lasts no longer than they do, to
// where the first process of the machine is.
func (t Tree) LeaveShims() error {
	own, err := memberships("/proc/self/cgroup")
	if err != nil {
		return err
	}
	first, err := memberships("/proc/1/cgroup")
	if err != nil {
		return err
	}
	for controller, root := range t.dirs {
		if t.V2 || controller == unified {
			controller = ""
		}
		if !isShims(path.Base(own[controller])) {
			continue
		}
		if err := writeFile(filepath.Join(root, first[controller], "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
			return fmt.Errorf("leaving cgroup %s: %w", own[controller], err)
		}
	}
	return nil
}

// memberships returns the cgroup of a process by controller, "" for that of version 2, from its file in /proc.
func memberships(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the cgroups of a process: %w", err)
	}
	return podspec.ParseCgroups(string(data)), nil
}

// enter moves a process into the cgroup p, in every hierarchy that has it.
func (t Tree) enter(p string, pid int) error {
	var err error
	for _, root := range t.hierarchies() {
		err = errors.Join(err, writeFile(filepath.Join(root, p, "cgroup.procs"), strconv.Itoa(pid)))
	}
	return err
}

// createLeaf creates the cgroup p, for processes, in the one that contains the pods.
func (t Tree) createLeaf(p string) error {
	for _, root := range t.hierarchies() {
		dir := filepath.Join(root, p)
		if !t.V2 {
			if err := t.createOne(dir); err != nil {
				return err
			}
		} else if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// empty reports whether there are no pods below the cgroup p. It waits for the shims of the last ones, and
// kills those that do not end. A process that died while it moved a shim has moved it in some hierarchies only.
func (t Tree) empty(p string) (bool, error) {
	var running []int // that were there before we looked for pods, and so are not those of new ones
	for begin := time.Now(); ; time.Sleep(killInterval) {
		below, err := t.children(p)
		if err != nil || len(below) == 0 {
			return err == nil, err
		}
		if len(below) > 1 || !isShims(below[0]) {
			return false, nil
		}
		busy := false
		var now []int
		waited := time.Since(begin)
		for _, root := range t.hierarchies() {
			shims := filepath.Join(root, p, below[0])
			if waited > shimTimeout {
				kill(shims, running)
			}
			one, _ := populated(shims) // or gone
			busy = busy || one
			now = append(now, processes(shims)...)
		}
		if !busy || waited > 2*shimTimeout {
			return !busy, nil
		}
		running = now
	}
}

// children returns the names of the cgroups in the cgroup p, in any hierarchy, or only some if there are many.
func (t Tree) children(p string) ([]string, error) {
	var all []string
	for _, root := range t.hierarchies() {
		names, err := children(filepath.Join(root, p), 2)
		if err != nil && !gone(err) {
			return nil, err
		}
		all = append(all, names...)
	}
	return slices.Compact(slices.Sorted(slices.Values(all))), nil
}
