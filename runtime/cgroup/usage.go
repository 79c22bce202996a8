package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podusage"
)

// Usage returns what the pod has used since its cgroup was created, and those of its containers that have the IDs. One
// that has no cgroup any more is left out; if the pod has none, the error wraps fs.ErrNotExist. The working set is
// computed as by cAdvisor (container/libcontainer/handler.go, setMemoryStats).
func (t Tree) Usage(pod *v1.Pod, ids []string) (of podusage.Sample, containers map[string]podusage.Sample, err error) {
	at := t.locate(pod).path
	if of, err = t.usage(at); err != nil {
		return podusage.Sample{}, nil, fmt.Errorf("reading what cgroup %s uses: %w", at, err)
	}
	containers = map[string]podusage.Sample{}
	for _, id := range ids {
		for _, dir := range within(filepath.Join(t.dirs["memory"], at), id) {
			used, err := t.usage(filepath.Join(at, filepath.Base(dir)))
			switch {
			case err == nil:
				containers[id] = used
			case !gone(err):
				return podusage.Sample{}, nil, fmt.Errorf("reading what container %s uses: %w", id, err)
			}
		}
	}
	return of, containers, nil
}

// usage reads what the cgroup with the path has used.
func (t Tree) usage(at string) (u podusage.Sample, err error) {
	cpu, memory := filepath.Join(t.dirs["cpu"], at), filepath.Join(t.dirs["memory"], at)
	var used, inactive uint64
	field := "inactive_file"
	if t.V2 {
		used, err = readField(filepath.Join(cpu, "cpu.stat"), "usage_usec")
		u.CPU = time.Duration(used) * time.Microsecond
		err = errors.Join(err, readNumber(filepath.Join(memory, "memory.current"), &u.Memory))
	} else if t.dirs["cpuacct"] == "" {
		return u, fmt.Errorf("the controller cpuacct is not mounted: %w", errors.ErrUnsupported)
	} else {
		err = readNumber(filepath.Join(t.dirs["cpuacct"], at, "cpuacct.usage"), &used)
		u.CPU = time.Duration(used)
		err = errors.Join(err, readNumber(filepath.Join(memory, "memory.usage_in_bytes"), &u.Memory))
		field = "total_inactive_file"
	}
	if err != nil {
		return u, err
	}
	inactive, err = readField(filepath.Join(memory, "memory.stat"), field)
	u.WorkingSet = u.Memory - min(u.Memory, inactive)
	return u, err
}

// readNumber reads a file that has one number.
func readNumber(path string, to *uint64) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if *to, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readField reads a number of a file that has a name and a number in each line.
func readField(path, name string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if field, value, ok := strings.Cut(line, " "); ok && field == name {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %s: %w", path, name, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s has no %s: %w", path, name, fs.ErrInvalid)
}
