package cputime

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestOf compares with what the kernel says of this process more exactly, before and after.
func TestOf(t *testing.T) {
	t.Parallel()
	for exact() < 50*time.Millisecond { // so that a process without any would be noticed
	}
	const tick = time.Second / ticksPerSecond
	before := exact()
	got, err := Of(os.Getpid())
	if after := exact(); err != nil || got < before-4*tick || got > after+4*tick {
		t.Errorf("%v, %v, want between %v and %v", got, err, before, after)
	}
	if _, err := Of(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}

func exact() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err != nil {
			panic(err)
		}
		sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return sum
}
