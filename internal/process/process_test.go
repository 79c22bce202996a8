package process_test

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
)

func TestAlive(t *testing.T) {
	t.Parallel()
	zombie := exec.CommandContext(t.Context(), "true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = zombie.Wait() })
	// Until it has ended; it is not reaped.
	if err := unix.Waitid(unix.P_PID, zombie.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		pid  int
		want bool
	}{
		"this process": {os.Getpid(), true},
		"a zombie":     {zombie.Process.Pid, false},
		"none":         {0, false},
		"too high":     {1 << 30, false},
	} {
		if got := process.Alive(tc.pid); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestStartTimeStays(t *testing.T) {
	t.Parallel()
	first, err := process.StartTime(os.Getpid())
	if err != nil || first == "" {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := process.StartTime(os.Getpid()); err != nil || again != first {
		t.Errorf("%q, then %q, %v", first, again, err)
	}
	if !process.Runs(os.Getpid(), first) || process.Runs(os.Getpid(), "1") || process.Runs(1<<30, first) {
		t.Error("a process that runs is told by its number and its start")
	}
}
