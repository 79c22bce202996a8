package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
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
			bytes += memory(pid)
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

// memory returns the anonymous and the shared memory of a process in bytes, or 0 if it has exited. Pages of files, such
// as its program, are not in it: they are there once for all processes, and the kernel can drop them at any time.
func memory(pid int) (sum int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 1 && (f[0] == "RssAnon:" || f[0] == "RssShmem:") {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			sum += kib << 10
		}
	}
	return sum
}

// watchMemory looks at the memory of a process until peak is called, which returns the most it was seen to have.
func watchMemory(pid int) (peak func() int64) {
	end, seen := make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		for {
			most = max(most, memory(pid))
			select {
			case <-end:
				seen <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(end)
		return <-seen
	}
}
