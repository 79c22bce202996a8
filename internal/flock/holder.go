package flock

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// Holder is the process that holds a lock. Its PID is 0 if that is not known: it may have ended
// and left the lock to a process that it has started.
type Holder struct {
	PID     int
	Command string    // its command line, shortened
	Stopped bool      // by a signal, such as that of Ctrl-Z
	Since   time.Time // when it got the lock, if that was by Acquire or Try; not in String
}

// maxCommand is how much of a command line is shown, in runes.
const maxCommand = 80

// String names the process, and says what to do if it cannot go on by itself.
func (h Holder) String() string {
	switch {
	case h.PID == 0:
		return "another process"
	case h.Stopped:
		return fmt.Sprintf("process %d (%s), which is stopped: resume it with kill -CONT %d or end it with kill -9 %d", h.PID, h.Command, h.PID, h.PID)
	default:
		return fmt.Sprintf("process %d (%s)", h.PID, h.Command)
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
		if h := Process(lockedBy(locks, file)); h.PID != 0 {
			h.Since = info.ModTime()
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

// Process returns what the kernel says of a process. One that has ended is not known.
func Process(pid int) Holder {
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
	h := Holder{PID: pid, Command: string(text[open+1 : end]), Stopped: state == 'T' || state == 't'}
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(line) > 0 {
		h.Command = command(strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"))
	}
	return h
}

// command returns a command line for people: without the program's directory, and passwords in URLs.
func command(args []string) string {
	args[0] = filepath.Base(args[0])
	for i, arg := range args {
		if u, err := url.Parse(arg); err == nil && u.User != nil {
			args[i] = u.Redacted()
		}
	}
	text := []rune(strings.Join(args, " "))
	if len(text) > maxCommand {
		text = append(text[:maxCommand:maxCommand], '…')
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, string(text))
}

// major and minor split a device number as the C library does.
func major(dev uint64) uint64 { return dev>>8&0xfff | dev>>32&^0xfff }
func minor(dev uint64) uint64 { return dev&0xff | dev>>12&^0xff }
