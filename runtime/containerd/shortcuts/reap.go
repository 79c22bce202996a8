package shortcuts

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// children are the shims that this process has started and that have not ended, so that none
// stays as a zombie. To wait for each would take a thread and a descriptor for each.
var children = struct {
	sync.Mutex
	pids map[int]bool // nil until the first one
}{}

// reap waits for a process in the background. It needs no release any more.
func reap(p *os.Process) {
	pid := p.Pid // which Release forgets
	children.Lock()
	defer children.Unlock()
	if children.pids == nil {
		children.pids = map[int]bool{}
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, unix.SIGCHLD)
		go func() {
			for range ended {
				reapEnded()
			}
		}()
	}
	children.pids[pid] = true
	_ = p.Release()
	reapOne(pid) // it may have ended before the signals were asked for
}

func reapEnded() {
	children.Lock()
	defer children.Unlock()
	for pid := range children.pids {
		reapOne(pid)
	}
}

func reapOne(pid int) {
	if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == pid || err == unix.ECHILD {
		delete(children.pids, pid)
	}
}
