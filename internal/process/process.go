// Package process tells whether a process runs, when it was started, and in which boot of the machine,
// finds the directories that killed processes have left, and keeps what this process has inherited
// away from pods, which outlive it.
package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// exiting is the flag of a process that ends: its files may be closed already (PF_EXITING).
const exiting = 0x4

// BootID identifies the boot of the machine; empty when it is not known.
var BootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})

// StartTime returns when the process was started, in clock ticks since the boot. The process
// may be a zombie, end just now, or be absent; then it does not run and this is an error.
func StartTime(pid int) (string, error) {
	fields, err := Stat(pid)
	if err != nil {
		return "", err
	}
	start, ok := started(fields)
	if !ok {
		return "", fmt.Errorf("process %d has exited", pid)
	}
	return start, nil
}

// Stat returns the fields of proc_pid_stat(5) of a process, from the third one on.
func Stat(pid int) ([]string, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return fieldsOf(string(stat)), err
}

// fieldsOf returns the fields from the third one on.
func fieldsOf(stat string) []string {
	// The program's name, in parentheses, may contain spaces and parentheses.
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// started returns when a process was started. It returns false for one that does not run any more.
func started(fields []string) (start string, ok bool) {
	// The state is field 3, the flags are field 9, the time of the start is field 22.
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 32)
	return fields[19], err == nil && flags&exiting == 0
}

// Runs reports whether the process runs that was started at the given time, as StartTime tells it.
func Runs(pid int, start string) bool {
	now, err := StartTime(pid)
	return err == nil && now == start
}

// Alive reports whether the process runs.
func Alive(pid int) bool {
	_, err := StartTime(pid)
	return err == nil
}
