package server

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
)

// limits are those of systemd's services, which the shims and containers of a kubelet have. Its open files
// and pending signals are left out: the former have limits of their own, those of the latter depend on
// the machine.
var limits = map[int]unix.Rlimit{
	unix.RLIMIT_AS:       {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY},
	unix.RLIMIT_CORE:     {Cur: 0, Max: unix.RLIM_INFINITY},
	unix.RLIMIT_CPU:      {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY},
	unix.RLIMIT_DATA:     {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY},
	unix.RLIMIT_FSIZE:    {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY},
	unix.RLIMIT_LOCKS:    {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY},
	unix.RLIMIT_MEMLOCK:  {Cur: 8 << 20, Max: 8 << 20},
	unix.RLIMIT_MSGQUEUE: {Cur: 819200, Max: 819200},
	unix.RLIMIT_NICE:     {},
	unix.RLIMIT_NPROC:    {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY},
	unix.RLIMIT_RSS:      {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY},
	unix.RLIMIT_RTPRIO:   {},
	unix.RLIMIT_RTTIME:   {Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY},
	unix.RLIMIT_STACK:    {Cur: 8 << 20, Max: unix.RLIM_INFINITY},
}

// setLimits gives a process these limits, as far as this process may raise its own.
func setLimits(pid int) error {
	for resource, want := range limits {
		err := unix.Prlimit(pid, resource, &want, nil)
		if errors.Is(err, unix.EPERM) {
			var own unix.Rlimit
			if err = unix.Getrlimit(resource, &own); err == nil {
				want.Max = min(want.Max, own.Max)
				want.Cur = min(want.Cur, want.Max)
				err = unix.Prlimit(pid, resource, &want, nil)
			}
		}
		if err != nil {
			return fmt.Errorf("setting its limits: %w", err)
		}
	}
	return nil
}

// lowerOOMScore keeps the kernel from killing a shim first, which is small, because the caller is to be
// killed first. Without the right to do that, it stays as it is.
func lowerOOMScore(pid int) {
	path := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	text, err := os.ReadFile(path)
	if score, _ := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && score > 0 {
		_ = os.WriteFile(path, []byte("0"), 0)
	}
}

// unscheduled calls f on a thread of its own, from which the processes that f starts inherit how they are
// scheduled and which signals they block. That is not what the caller of this program has: "nice",
// "taskset" and the like are for it alone. What is not allowed stays as it is.
func unscheduled(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread() // and the thread ends with the goroutine
		var all unix.CPUSet
		for i := range unsafe.Sizeof(all) * 8 {
			all.Set(int(i))
		}
		_ = unix.SchedSetaffinity(0, &all) // those that the cpuset allows
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
		_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, 1, 0, 0) // this thread, as its nice value says
		_, _, _ = unix.Syscall(unix.SYS_PERSONALITY, 0, 0, 0)
		process.UsualTimers()
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)
		f()
	}()
	<-done
}
