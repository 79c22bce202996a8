package kubelet_test

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime/serve/kubelet"
)

// TestMachineUsage: what is idle or waits for a disk is not used.
func TestMachineUsage(t *testing.T) {
	t.Parallel()
	got, err := kubelet.MachineUsage(fstest.MapFS{
		"proc/stat":    {Data: []byte("cpu  100 20 30 90000 8000 4 5 6 700 800\ncpu0 1 1 1 1 1 1 1 1 1 1\n")},
		"proc/meminfo": {Data: []byte("MemTotal:  1000 kB\nMemFree:    200 kB\nMemAvailable:   600 kB\nHugePages_Total:  0\n")},
	})
	if expect := (podusage.Sample{CPU: 1650 * time.Millisecond, Memory: 800 << 10, WorkingSet: 400 << 10}); err != nil || got != expect {
		t.Errorf("%+v, %v, want %+v", got, err, expect)
	}
}
