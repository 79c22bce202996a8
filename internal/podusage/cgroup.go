package podusage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Cgroup is a cgroup, by its directories in the hierarchies of the controllers. With V2 they are the same.
type Cgroup struct {
	V2              bool
	CPU, Memory, IO string // cpuacct, memory and blkio of version 1; "" for one that is not mounted
}

// Sample reads what the processes in the cgroup and below it have used since it was created. The working set is
// computed as by cAdvisor (container/libcontainer/handler.go, setMemoryStats).
func (c Cgroup) Sample() (s Sample, err error) {
	current, field := "memory.current", "inactive_file"
	if !c.V2 {
		current, field = "memory.usage_in_bytes", "total_inactive_file"
	}
	s.CPU, err = c.cpu()
	if err != nil {
		return s, err
	}
	if s.Memory, err = number(filepath.Join(c.Memory, current)); err != nil {
		return s, err
	}
	inactive, err := counter(filepath.Join(c.Memory, "memory.stat"), field)
	s.WorkingSet = s.Memory - min(s.Memory, inactive)
	return s, err
}

// cpu reads the time of all processors together.
func (c Cgroup) cpu() (time.Duration, error) {
	switch {
	case c.CPU == "":
		return 0, fmt.Errorf("the controller cpuacct is not mounted: %w", errors.ErrUnsupported)
	case c.V2:
		used, err := counter(filepath.Join(c.CPU, "cpu.stat"), "usage_usec")
		return time.Duration(used) * time.Microsecond, err
	}
	used, err := number(filepath.Join(c.CPU, "cpuacct.usage"))
	return time.Duration(used), err
}

// Total reads what the processes in the cgroup and below it have used since it was created, as far as the kernel tells.
func (c Cgroup) Total() (t Total) {
	if used, err := c.cpu(); err == nil {
		t.CPUSeconds = new(used.Round(time.Microsecond).Seconds())
	}
	peak := "memory.peak" // since Linux 5.19
	if !c.V2 {
		peak = "memory.max_usage_in_bytes"
	}
	if bytes, err := number(filepath.Join(c.Memory, peak)); err == nil {
		t.PeakMemoryBytes = new(int64(bytes))
	}
	t.ReadBytes, t.WrittenBytes = c.traffic()
	if kills, err := c.OOMKills(); err == nil {
		t.OOMKills = &kills
	}
	return t
}

// OOMKills reads how many processes the kernel has killed for want of memory.
func (c Cgroup) OOMKills() (int64, error) {
	name := "memory.events" // with what is below the cgroup
	if !c.V2 {
		name = "memory.oom_control"
	}
	kills, err := counter(filepath.Join(c.Memory, name), "oom_kill")
	return int64(kills), err
}

// traffic reads what was read from block devices and written to them, nil if that is not known.
func (c Cgroup) traffic() (read, written *int64) {
	name := "io.stat"
	if !c.V2 {
		name = "blkio.throttle.io_service_bytes_recursive"
	}
	text, err := os.ReadFile(filepath.Join(c.IO, name))
	if c.IO == "" || err != nil {
		return nil, nil
	}
	read, written = new(int64), new(int64)
	add := func(to *int64, value string) {
		n, _ := strconv.ParseInt(value, 10, 64)
		*to += n
	}
	for line := range strings.Lines(string(text)) {
		// 8:0 rbytes=1 wbytes=2 ..., or in version 1: 8:0 Read 1
		words := strings.Fields(line)
		for i, word := range words {
			switch name, value, _ := strings.Cut(word, "="); {
			case name == "rbytes":
				add(read, value)
			case name == "wbytes":
				add(written, value)
			case i == 1 && word == "Read" && len(words) == 3:
				add(read, words[2])
			case i == 1 && word == "Write" && len(words) == 3:
				add(written, words[2])
			}
		}
	}
	return read, written
}

// number reads a file that has one number.
func number(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

// counter reads a number of a file that has a name and a number in each line.
func counter(path, name string) (uint64, error) {
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
