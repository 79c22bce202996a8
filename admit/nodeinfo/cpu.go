package nodeinfo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// maxCPU bounds the numbers of processors; Linux supports 8,192.
const maxCPU = 1 << 16

// processors returns the number of online processors that this process may run on. Its
// affinity in /proc is what sched_getaffinity returns, cpusets included.
func processors(fsys fs.FS) (int, error) {
	online, err := onlineCPUs(fsys)
	if err != nil {
		return 0, err
	}
	allowed := affinity(fsys)
	if allowed == nil {
		return len(online), nil
	}
	n := 0
	for cpu := range online {
		if allowed[cpu] {
			n++
		}
	}
	if n == 0 {
		return 0, errors.New("counting processors: this process may use none of those online")
	}
	return n, nil
}

// onlineCPUs returns the numbers of the processors that are online.
func onlineCPUs(fsys fs.FS) (map[int]bool, error) {
	if list := line(fsys, "sys/devices/system/cpu/online"); list != "" {
		cpus, err := parseCPUs(list)
		if err != nil {
			return nil, fmt.Errorf("counting processors: /sys/devices/system/cpu/online: %w", err)
		}
		return cpus, nil
	}
	data, err := fs.ReadFile(fsys, "proc/cpuinfo")
	if err != nil {
		return nil, fmt.Errorf("counting processors: %w", err)
	}
	cpus := map[int]bool{}
	for _, value := range values(data, "processor") {
		if n, err := strconv.Atoi(value); err == nil {
			cpus[n] = true
		}
	}
	if len(cpus) == 0 {
		return nil, errors.New("counting processors: none in /proc/cpuinfo")
	}
	return cpus, nil
}

// affinity returns the processors that this process may run on, nil if it is not known.
func affinity(fsys fs.FS) map[int]bool {
	data, err := fs.ReadFile(fsys, "proc/self/status")
	if err != nil {
		return nil
	}
	for _, list := range values(data, "Cpus_allowed_list") {
		if cpus, err := parseCPUs(list); err == nil {
			return cpus
		}
	}
	return nil
}

// values returns the values of the lines "name: value".
func values(data []byte, name string) []string {
	var found []string
	for l := range bytes.Lines(data) {
		if key, value, ok := strings.Cut(string(l), ":"); ok && strings.TrimSpace(key) == name {
			found = append(found, strings.TrimSpace(value))
		}
	}
	return found
}

// parseCPUs reads a list like 0-3,8 as the kernel writes it.
func parseCPUs(list string) (map[int]bool, error) {
	cpus := map[int]bool{}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, lastErr := strconv.Atoi(last)
		if err != nil || lastErr != nil || from < 0 || to < from || to > maxCPU {
			return nil, fmt.Errorf("%q is not a list of processors", list)
		}
		for n := from; n <= to; n++ {
			cpus[n] = true
		}
	}
	return cpus, nil
}
