package oci

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
)

// kill kills a command of the runtime with all processes that it has started, and waits a while for
// their end. runc's are in a session of their own and live on for a moment without it: they would
// make mount points where the root file system has been until then.
func (r *Runtime) kill(pid int, ended <-chan Exit) {
	_ = r.Reaper.Signal(-pid, syscall.SIGSTOP) // it starts no more of them
	all := process.Descendants(pid)
	for more := process.Descendants(pid); len(more) != len(all); more = process.Descendants(pid) {
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
