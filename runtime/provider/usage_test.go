package provider

import (
	"os"
	"testing"
	"testing/fstest"
	"time"
)

// TestMachineUsage: what is idle or waits for a disk is not used.
func TestMachineUsage(t *testing.T) {
	t.Parallel()
	got, err := machineUsage(fstest.MapFS{
		"proc/stat":    {Data: []byte("cpu  100 20 30 90000 8000 4 5 6 700 800\ncpu0 1 1 1 1 1 1 1 1 1 1\n")},
		"proc/meminfo": {Data: []byte("MemTotal:  1000 kB\nMemFree:    200 kB\nMemAvailable:   600 kB\nHugePages_Total:  0\n")},
	})
	if want := (usage{1650 * time.Millisecond, 800 << 10, 400 << 10}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// TestReadUsage: of a cgroup with a process, on whatever this machine has.
func TestReadUsage(t *testing.T) {
	t.Parallel()
	used, err := readUsage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if used.cpu <= 0 || used.workingSet > used.memory {
		t.Errorf("%+v", used)
	}
	if _, err := readUsage(1 << 30); err == nil {
		t.Error("no error of a process that does not exist")
	}
}
