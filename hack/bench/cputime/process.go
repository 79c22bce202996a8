package cputime

import (
	"fmt"
	"strconv"
	"time"

	"github.com/runonce/runonce/internal/process"
)

// ticksPerSecond are those of a process's CPU time (USER_HZ).
const ticksPerSecond = 100

// Of returns the CPU time that a process and the children that it has waited for have used, as exactly as the kernel's
// ticks are.
func Of(pid int) (time.Duration, error) {
	fields, err := process.Stat(pid)
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of a process: %w", err)
	}
	total := 0
	for _, text := range fields[11:15] { // from utime, the 14th of all, on
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
		}
		total += n
	}
	return time.Duration(total) * time.Second / ticksPerSecond, nil
}
