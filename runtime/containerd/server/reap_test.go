package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReap: processes that run need no descriptor of this one, and none stays as a zombie. It does
// not run in parallel, since it counts the descriptors of the process.
func TestReap(t *testing.T) {
	end, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = end.Close() }()
	before := descriptors(t)
	var pids []int
	for range 10 {
		cmd := exec.CommandContext(t.Context(), "cat")
		cmd.Stdin = end
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, cmd.Process.Pid)
		reap(cmd.Process)
	}
	if now := descriptors(t); now > before {
		t.Errorf("%d descriptors, %d without the processes", now, before)
	}
	if err := hold.Close(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		gone := func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
			return errors.Is(err, fs.ErrNotExist)
		}
		for deadline := time.Now().Add(time.Minute); !gone(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is left", pid)
			}
		}
	}
}

// TestReapOthers: the children that others wait for are left to them.
func TestReapOthers(t *testing.T) {
	other := exec.CommandContext(t.Context(), "true")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, other.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	ours := exec.CommandContext(t.Context(), "true")
	if err := ours.Start(); err != nil {
		t.Fatal(err)
	}
	reap(ours.Process)
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
