package nodeinfo

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
)

// Process is a process of this machine.
type Process struct {
	PID     int
	Name    string
	Cgroups []string // in all hierarchies
}

// Holders returns the processes that have the sockets with these inodes open, by inode and in
// order of their PIDs. It reads the descriptors of all processes. Those that end meanwhile or
// may not be read are left out.
func Holders(fsys fs.FS, inodes []uint64) map[uint64][]Process {
	wanted := map[string]uint64{}
	for _, n := range inodes {
		if n != 0 {
			wanted[fmt.Sprintf("socket:[%d]", n)] = n
		}
	}
	holders := map[uint64][]Process{}
	if len(wanted) == 0 {
		return holders
	}
	entries, err := fs.ReadDir(fsys, "proc")
	if err != nil {
		return holders
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		for _, n := range openSockets(fsys, e.Name(), wanted) {
			holders[n] = append(holders[n], process(fsys, pid))
		}
	}
	for _, all := range holders {
		slices.SortFunc(all, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	}
	return holders
}

// openSockets returns the inodes of the wanted sockets that the process has open.
func openSockets(fsys fs.FS, pid string, wanted map[string]uint64) []uint64 {
	dir := "proc/" + pid + "/fd"
	descriptors, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil
	}
	var found []uint64
	for _, d := range descriptors {
		target, err := fs.ReadLink(fsys, dir+"/"+d.Name())
		if n, ok := wanted[target]; ok && err == nil && !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}

func process(fsys fs.FS, pid int) Process {
	dir := fmt.Sprintf("proc/%d/", pid)
	p := Process{PID: pid, Name: line(fsys, dir+"comm")}
	if byController, err := cgroups(fsys, dir+"cgroup"); err == nil {
		p.Cgroups = slices.Compact(slices.Sorted(maps.Values(byController)))
	}
	return p
}
