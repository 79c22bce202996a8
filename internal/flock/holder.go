package flock

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Holder is the process that holds a lock. Its PID is 0 if that is not known: it may have ended
// and left the lock to a process that it has started.
type Holder struct {
	PID     int
	Name    string
	Stopped bool // by a signal, such as that of Ctrl-Z
}

// String names the process, and says what to do if it cannot go on by itself.
func (h Holder) String() string {
	switch {
	case h.PID == 0:
		return "another process"
	case h.Stopped:
		return fmt.Sprintf("process %d (%s), which is stopped: resume it with kill -CONT %d or end it with kill -9 %d", h.PID, h.Name, h.PID, h.PID)
	default:
		return fmt.Sprintf("process %d (%s)", h.PID, h.Name)
	}
}

// HolderOf returns the process that holds the lock of the file.
func HolderOf(path string) Holder {
	info, err := os.Stat(path)
	if err != nil {
		return Holder{}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	locks, err := os.ReadFile("/proc/locks")
	if !ok || err != nil {
		return Holder{}
	}
	// File systems of several devices show another number here: then the inode has to do.
	for _, file := range []string{
		fmt.Sprintf("%02x:%02x:%d", major(uint64(stat.Dev)), minor(uint64(stat.Dev)), stat.Ino),
		fmt.Sprintf(":%d", stat.Ino),
	} {
		if h := describe(lockedBy(locks, file)); h.PID != 0 {
			return h
		}
	}
	return Holder{}
}

// lockedBy returns the process that has locked a file, by the end of how it is named in the
// kernel's table of locks; 0 for none. A line is "1: FLOCK ADVISORY WRITE 708 00:17:1234 0 EOF".
func lockedBy(locks []byte, file string) int {
	for line := range bytes.Lines(locks) {
		f := strings.Fields(string(line))
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], file) {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// describe reads what the kernel says of a process. One that has ended is not known.
func describe(pid int) Holder {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Holder{}
	}
	// 708 (name) S ...
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open || end+2 >= len(text) {
		return Holder{}
	}
	state := text[end+2]
	return Holder{PID: pid, Name: string(text[open+1 : end]), Stopped: state == 'T' || state == 't'}
}

// major and minor split a device number as the C library does.
func major(dev uint64) uint64 { return dev>>8&0xfff | dev>>32&^0xfff }
func minor(dev uint64) uint64 { return dev&0xff | dev>>12&^0xff }
