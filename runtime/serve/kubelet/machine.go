package kubelet

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/podusage"
)

// tick is the unit of times in /proc/stat (USER_HZ), the same on all architectures of ours.
const tick = time.Second / 100

// MachineUsage reads what the machine whose root is fsys has used (proc(5)).
func MachineUsage(fsys fs.FS) (podusage.Sample, error) {
	stat, err := fs.ReadFile(fsys, "proc/stat")
	if err != nil {
		return podusage.Sample{}, fmt.Errorf("reading the CPU time of the machine: %w", err)
	}
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscanf(string(stat), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return podusage.Sample{}, fmt.Errorf("reading the CPU time of the machine: /proc/stat: %w", err)
	}
	meminfo, err := fs.ReadFile(fsys, "proc/meminfo")
	if err != nil {
		return podusage.Sample{}, fmt.Errorf("reading the memory of the machine: %w", err)
	}
	memory := map[string]uint64{}
	for line := range strings.Lines(string(meminfo)) {
		var kib uint64
		name, rest, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscan(rest, &kib); err == nil {
			memory[name] = kib << 10
		}
	}
	total := memory["MemTotal"]
	return podusage.Sample{
		CPU:    time.Duration(user+nice+system+irq+softirq+steal) * tick,
		Memory: total - min(total, memory["MemFree"]), WorkingSet: total - min(total, memory["MemAvailable"]),
	}, nil
}
