// Package nodeinfo reads what a machine has from its /proc and /sys, given as an fs.FS.
package nodeinfo

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
)

// Facts describe a machine, as far as this process may use it.
type Facts struct {
	MilliCPU  int64           // thousandths of a processor
	Memory    int64           // bytes
	Available int64           // bytes of Memory that new processes can use
	HugePages map[int64]int64 // pages by their size in bytes
	Kernel    string          // release, for example 6.1.0-18-amd64; empty if it is not known
	// OS is the name of the operating system; MachineID and BootID are random. They are empty if
	// they are not known.
	OS, MachineID, BootID string
}

// Read describes the machine whose root is fsys. It counts the processors that this process may run on, and
// neither processors nor memory beyond the limits of a container around it.
func Read(fsys fs.FS, processors int) (Facts, error) {
	memory, err := podusage.Meminfo(fsys)
	if err != nil {
		return Facts{}, err
	}
	limits, err := readLimits(fsys)
	if err != nil {
		return Facts{}, err
	}
	pages, err := hugePages(fsys)
	if err != nil {
		return Facts{}, err
	}
	return Facts{
		MilliCPU:  min(int64(processors)*1000, limits.milliCPU),
		Memory:    min(memory["MemTotal"], limits.memory),
		Available: min(available(memory), limits.available),
		HugePages: pages,
		Kernel:    line(fsys, "proc/sys/kernel/osrelease"),
		OS:        osName(fsys),
		MachineID: line(fsys, "etc/machine-id"),
		BootID:    line(fsys, "proc/sys/kernel/random/boot_id"),
	}, nil
}

// osName returns the name of the operating system (os-release(5)).
func osName(fsys fs.FS) string {
	data, err := fs.ReadFile(fsys, "etc/os-release")
	if err != nil {
		data, _ = fs.ReadFile(fsys, "usr/lib/os-release")
	}
	for l := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(l), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return ""
}

// line returns a file's first line, empty if there is none.
func line(fsys fs.FS, name string) string {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(first)
}

// available returns the memory that new processes can use; kernels before 3.14 do not report
// it.
func available(memory map[string]int64) int64 {
	if n, ok := memory["MemAvailable"]; ok {
		return n
	}
	return memory["MemFree"] + memory["Buffers"] + memory["Cached"]
}

// hugePages returns the number of allocated huge pages of each size.
func hugePages(fsys fs.FS) (map[int64]int64, error) {
	sizes, err := podspec.HugePageSizes(fsys)
	if err != nil {
		return nil, fmt.Errorf("reading the machine's huge pages: %w", err)
	}
	pages := map[int64]int64{}
	for _, size := range sizes {
		n, err := strconv.ParseInt(line(fsys, podspec.HugePagesFile(size, "nr_hugepages")), 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("reading the machine's huge pages: /%s: nr_hugepages is not a number", path.Dir(podspec.HugePagesFile(size, "nr_hugepages")))
		}
		pages[size] = n
	}
	return pages, nil
}
