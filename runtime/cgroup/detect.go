package cgroup

import (
	"fmt"
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
	t.made, t.units = &sync.Map{}, &systemdBus{}
	if t.dirs["hugetlb"] != "" {
		if t.HugePages, err = podspec.HugePageSizes(os.DirFS("/")); err != nil {
			return Tree{}, fmt.Errorf("reading the huge page sizes: %w", err)
		}
	}
	return t, nil
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
			return fmt.Errorf("controller %s: %s is mounted read-only", c, dir)
		}
	}
	for name, dir := range t.dirs {
		if readOnly[dir] {
			delete(t.dirs, name)
		}
	}
	return nil
}
