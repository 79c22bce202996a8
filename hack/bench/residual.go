package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/runonce/runonce/hack/bench/memory"
)

// residual counts the running containers in the cgroups and adds up the memory of all other
// processes there: shims, loggers, monitors.
func (m *meter) residual(groups []string) (running int, bytes int64, err error) {
	for _, g := range groups {
		pids, err := m.processes(g)
		if err != nil {
			return 0, 0, err
		}
		for _, pid := range pids {
			exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			if err != nil || pid == os.Getpid() || m.ignored[pid] {
				continue // it has exited, or is not part of the measurement
			}
			if filepath.Base(exe) == "pause" {
				running++
				continue
			}
			bytes += memory.Of(pid)
		}
	}
	return running, bytes, nil
}

// processes returns the processes in a cgroup and in all cgroups below it.
func (m *meter) processes(group string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(filepath.Join(m.root, group), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // the cgroup may have been removed meanwhile
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for f := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				return fmt.Errorf("reading the processes of %q: %w", path, err)
			}
			pids = append(pids, pid)
		}
		return nil
	})
	return pids, err
}
