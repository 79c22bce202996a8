// Package memory measures the memory of other processes.
package memory

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Of returns the anonymous and the shared memory of a process in bytes, or 0 if it has exited. Pages of files, such
// as its program, are not in it: they are there once for all processes, and the kernel can drop them at any time.
func Of(pid int) (sum int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 1 && (f[0] == "RssAnon:" || f[0] == "RssShmem:") {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0
			}
			sum += kib << 10
		}
	}
	return sum
}

// Watch looks at a process until the function is called that it returns, which returns the most memory and the most open
// files that the process was seen to have. Before Linux 6.2 the number of files is 0.
func Watch(pid int) (most func() (memory, files int64)) {
	end, seen := make(chan struct{}), make(chan [2]int64)
	go func() {
		var most [2]int64
		for {
			most[0] = max(most[0], Of(pid))
			if fi, err := os.Stat(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
				most[1] = max(most[1], fi.Size())
			}
			select {
			case <-end:
				seen <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() (memory, files int64) {
		close(end)
		most := <-seen
		return most[0], most[1]
	}
}
