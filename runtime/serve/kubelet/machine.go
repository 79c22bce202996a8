package kubelet

import (
	"fmt"
	"io/fs"
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
	memory, err := podusage.Meminfo(fsys)
	if err != nil {
		return podusage.Sample{}, err
	}
	total := memory["MemTotal"]
	return podusage.Sample{
		CPU:    time.Duration(user+nice+system+irq+softirq+steal) * tick,
		Memory: uint64(max(total-memory["MemFree"], 0)), WorkingSet: uint64(max(total-memory["MemAvailable"], 0)),
	}, nil
}
