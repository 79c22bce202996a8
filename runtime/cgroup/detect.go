package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"

	"github.com/runonce/runonce/runtime/cgroup/systemd"
)

// Names of hierarchies without controllers.
const (
	nameSystemd = "name=systemd"
	unified     = "unified"
)

// Detect finds the controllers that are mounted below root ("/sys/fs/cgroup"). A hybrid
// machine, whose unified hierarchy is there but has no cpu and memory controllers, is v1.
// A missing or read-only hierarchy that limits need is an error.
func Detect(root string) (Tree, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
	if err != nil {
		return Tree{}, fmt.Errorf("reading the mounts below %s: %w", root, err)
	}
	t, err := detect(mounts, root, os.ReadFile)
	if err != nil {
		return Tree{}, fmt.Errorf("looking for cgroups below %s: %w", root, err)
	}
	t.made, t.Units = &sync.Map{}, &systemd.Bus{}
	if t.dirs["hugetlb"] != "" {
		if t.HugePages, err = pageSizes("/sys/kernel/mm/hugepages"); err != nil {
			return Tree{}, err
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
			v2, controllers, options = m.Mountpoint, strings.Fields(string(data)), kept(m.VFSOptions)
		case "cgroup":
			for opt := range strings.SplitSeq(m.VFSOptions, ",") {
				if opt == nameSystemd || slices.Contains(used(), opt) {
					v1[opt] = m.Mountpoint
				}
			}
		}
	}
	t := Tree{dirs: v1}
	if v2 != "" && has(controllers, required()) {
		t = Tree{V2: true, Options: options, dirs: map[string]string{}}
		for _, c := range controllers {
			t.dirs[c] = v2
		}
	} else if v2 != "" {
		v1[unified] = v2
	}
	return t, t.check(root, readOnly)
}

// kept returns the options of a cgroup2 mount that a mount without them would take away.
func kept(options string) []string {
	return slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		return o != "nsdelegate" && o != "memory_recursiveprot"
	})
}

func has(list, want []string) bool {
	return !slices.ContainsFunc(want, func(c string) bool { return !slices.Contains(list, c) })
}

// check says which required hierarchy is missing or read-only.
func (t Tree) check(root string, readOnly map[string]bool) error {
	for _, c := range required() {
		dir, ok := t.dirs[c]
		if !ok {
			return fmt.Errorf("controller %s is not mounted below %s", c, root)
		}
		if readOnly[dir] {
			return fmt.Errorf("controller %s: %s is mounted read-only", c, dir)
		}
	}
	for name, dir := range t.dirs {
		// Runtimes do without what they cannot write; so do we.
		if readOnly[dir] {
			delete(t.dirs, name)
		}
	}
	return nil
}

// pageSizes returns the huge page sizes of the kernel in bytes.
func pageSizes(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the huge page sizes: %w", err)
	}
	var sizes []int64
	for _, e := range entries {
		kb := strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB")
		if n, err := strconv.ParseInt(kb, 10, 64); err == nil {
			sizes = append(sizes, n<<10)
		}
	}
	slices.Sort(sizes)
	return sizes, nil
}
