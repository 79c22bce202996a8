package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"

	"github.com/runonce/runonce/internal/podspec"
)

// Names of hierarchies without controllers.
const (
	nameSystemd = "name=systemd"
	unified     = "unified"
)

// ErrReadOnly is in the error of Detect if pods cannot get cgroups for that.
var ErrReadOnly = errors.New("mounted read-only")

// Detect finds the controllers that are mounted below root ("/sys/fs/cgroup"). A hybrid
// machine, whose unified hierarchy is there but has no cpu and memory controllers, is v1.
// It is an error if a required controller is missing or read-only.
func Detect(root string) (Tree, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
	if err != nil {
		return Tree{}, fmt.Errorf("reading the mounts below %s: %w", root, err)
	}
	t, err := detect(mounts, root, os.ReadFile)
	if err != nil {
		return Tree{}, fmt.Errorf("looking for cgroups below %s: %w", root, err)
	}
	t.made, t.shares, t.units = &sync.Map{}, &classShares{classes: map[string]classSum{}}, &systemdBus{}
	if t.base, err = t.container(root); err != nil {
		return Tree{}, fmt.Errorf("looking for the cgroup of this container: %w", err)
	}
	if t.dirs["hugetlb"] != "" {
		if t.HugePages, err = podspec.HugePageSizes(os.DirFS("/")); err != nil {
			return Tree{}, fmt.Errorf("reading the huge page sizes: %w", err)
		}
	}
	return t, nil
}

// machinePIDs is the PID namespace of the machine: the kernel's PROC_PID_INIT_INO.
const machinePIDs = "pid:[4026531836]"

// container returns the cgroup of the container in which this program runs, if that has the machine's cgroup namespace, as
// privileged ones have on Kubernetes. Elsewhere it is the root: on v1, OCI runtimes mount it there.
func (t Tree) container(root string) (string, error) {
	if !t.V2 || !isMachines(root) {
		return "", nil
	}
	if pids, err := os.Readlink("/proc/self/ns/pid"); err != nil || pids == machinePIDs {
		return "", err
	}
	first, err := memberships("/proc/1/cgroup")
	return strings.TrimSuffix(first[""], "/"+vacated), err
}

// isMachines reports whether the root of a v2 hierarchy is that of the machine.
func isMachines(root string) bool {
	_, err := os.Stat(filepath.Join(root, "cgroup.type"))
	return errors.Is(err, fs.ErrNotExist)
}

// detect sorts the mounts by controller.
func detect(mounts []*mountinfo.Info, root string, read func(string) ([]byte, error)) (Tree, error) {
	v1, readOnly := map[string]string{}, map[string]bool{}
	v2 := ""
	var controllers, options []string
	for _, m := range mounts {
		readOnly[m.Mountpoint] = slices.Contains(strings.Split(m.Options, ","), "ro")
		switch m.FSType {
		case "cgroup2":
			data, err := read(filepath.Join(m.Mountpoint, "cgroup.controllers"))
			if err != nil {
				return Tree{}, err
			}
			v2, controllers, options = m.Mountpoint, strings.Fields(string(data)), sharedOptions(m.VFSOptions)
		case "cgroup":
			for opt := range strings.SplitSeq(m.VFSOptions, ",") {
				if opt == nameSystemd || slices.Contains(used, opt) {
					v1[opt] = m.Mountpoint
				}
			}
		}
	}
	t := Tree{dirs: v1}
	if v2 != "" && containsAll(controllers, required) {
		t = Tree{V2: true, Options: options, dirs: map[string]string{}}
		for _, c := range controllers {
			t.dirs[c] = v2
		}
	} else if v2 != "" {
		v1[unified] = v2
	}
	return t, t.check(root, readOnly)
}

// sharedOptions returns the options of a cgroup2 mount that another mount must repeat to keep.
func sharedOptions(options string) []string {
	return slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		return o != "nsdelegate" && o != "memory_recursiveprot"
	})
}

func containsAll(list, want []string) bool {
	return !slices.ContainsFunc(want, func(c string) bool { return !slices.Contains(list, c) })
}

// check returns an error when a required controller is missing or read-only, and leaves out
// others that are read-only, as OCI runtimes do.
func (t Tree) check(root string, readOnly map[string]bool) error {
	for _, c := range required {
		dir, ok := t.dirs[c]
		if !ok {
			return fmt.Errorf("controller %s is not mounted below %s", c, root)
		}
		if readOnly[dir] {
			return fmt.Errorf("controller %s: %s is %w", c, dir, ErrReadOnly)
		}
	}
	for name, dir := range t.dirs {
		if readOnly[dir] {
			delete(t.dirs, name)
		}
	}
	return nil
}
