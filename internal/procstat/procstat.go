// Package procstat tells whether a process runs and when it was started.
package procstat

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// StartTime returns when the process was started, in clock ticks since the boot. The process
// may be a zombie or absent; then it does not run and this is an error.
func StartTime(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	stat := string(data)
	// The program's name, in parentheses, may contain spaces and parentheses.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	// The state is field 3 of proc_pid_stat(5), the time of the start is field 22.
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}

// Alive reports whether the process runs.
func Alive(pid int) bool {
	_, err := StartTime(pid)
	return err == nil
}
