package process

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// usualSlack is how much later than asked for the kernel wakes a thread by default, in nanoseconds.
	usualSlack = 50_000
	// wideSlack is for Go's monitor: while the program is busy, it sleeps for 20 microseconds at a time.
	wideSlack = 1_000_000
)

// RelaxMonitor has Go's monitor, which takes processors from threads in system calls, wake up less often: that is a
// tenth of the CPU time of a program that does little but system calls. Package main calls it first of all, when there
// are no other threads than this one and those of Go itself.
func RelaxMonitor() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if t.Name() != strconv.Itoa(os.Getpid()) {
			_ = os.WriteFile("/proc/"+t.Name()+"/timerslack_ns", []byte(strconv.Itoa(wideSlack)), 0)
		}
	}
}

// UsualTimers undoes RelaxMonitor for the current thread, which may have been started by the monitor, and so for the
// processes that it starts.
func UsualTimers() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0) }
