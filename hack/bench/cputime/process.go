package cputime

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond are those of a process's CPU time (USER_HZ).
const ticksPerSecond = 100

// Of returns the CPU time that a process and the children that it has waited for have used, as exactly as the kernel's
// ticks are.
func Of(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of a process: %w", err)
	}
	// After the name, which may have spaces, come the fields from the third on: utime is the 14th.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	total := 0
	for _, text := range fields[11:15] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
		}
		total += n
	}
	return time.Duration(total) * time.Second / ticksPerSecond, nil
}
