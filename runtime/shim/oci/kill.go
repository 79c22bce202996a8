package oci

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kill kills a command of the runtime with all processes that it has started, and waits a while for
// their end. runc's are in a session of their own and live on for a moment without it: they would
// make mount points where the root file system has been until then.
func (r *Runtime) kill(pid int, ended <-chan Exit) {
	_ = r.Reaper.Signal(-pid, syscall.SIGSTOP) // it starts no more of them
	all := descendants(pid)
	for more := descendants(pid); len(more) != len(all); more = descendants(pid) {
		all = more
	}
	late := time.Now().Add(killDelay)
	files := make([]unix.PollFd, 0, len(all))
	for _, child := range all {
		fd, err := unix.PidfdOpen(child, 0) // of before the signals: the number is not another process's yet
		if err == nil {
			files = append(files, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	_ = r.Reaper.Signal(-pid, syscall.SIGKILL)
	for _, f := range files {
		_ = unix.PidfdSendSignal(int(f.Fd), unix.SIGKILL, nil, 0)
	}
	select {
	case <-ended:
	case <-time.After(killDelay):
	}
	for i := range files {
		_, _ = unix.Poll(files[i:i+1], int(max(0, time.Until(late)).Milliseconds()))
		_ = unix.Close(int(files[i].Fd))
	}
}

// descendants returns the children of a process and theirs, in order.
func descendants(pid int) (found []int) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the name may have spaces
		child, cerr := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) < 2 || cerr != nil {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	next := []int{pid}
	for len(next) > 0 {
		of := children[next[0]]
		found, next = append(found, of...), append(next[1:], of...)
	}
	slices.Sort(found)
	return found
}
