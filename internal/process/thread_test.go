package process_test

import (
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
)

// TestApart: each call has a thread that nobody else has, and never the first one.
func TestApart(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var all, begun sync.WaitGroup
	seen := map[int]bool{os.Getpid(): true}
	const calls = 20
	all.Add(calls)
	begun.Add(calls)
	for range calls {
		process.Apart(func() {
			defer all.Done()
			mu.Lock()
			if id := unix.Gettid(); seen[id] {
				t.Errorf("thread %d is used twice", id)
			} else {
				seen[id] = true
			}
			mu.Unlock()
			begun.Done()
			begun.Wait()
		})
	}
	all.Wait()
}
