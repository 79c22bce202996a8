package process_test

import (
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
)

// TestRelaxMonitor: Go's monitor may be late, and what a thread starts that it has started is not.
func TestRelaxMonitor(t *testing.T) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	main := strconv.Itoa(os.Getpid())
	before := slack(t, main)
	process.RelaxMonitor()
	if now := slack(t, main); now != before {
		t.Errorf("the first thread: %s, before %s", now, before)
	}
	for _, thread := range threads {
		if now := slack(t, thread.Name()); now != "1000000" && now != "" && thread.Name() != main {
			t.Errorf("thread %s: %s", thread.Name(), now)
		}
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	process.UsualTimers()
	if now := slack(t, strconv.Itoa(unix.Gettid())); now != "50000" {
		t.Errorf("the current thread: %s", now)
	}
}

// slack returns by how many nanoseconds timers of a thread may be late, empty for one that has ended.
func slack(t *testing.T, thread string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + thread + "/timerslack_ns")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
