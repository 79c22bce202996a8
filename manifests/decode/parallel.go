package decode

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
)

// LargeFile is the size in bytes from which a file is read alone and its documents in parallel;
// smaller files are read in parallel with others. This bounds the memory for the text and the
// parsed trees of all files that are being read.
const LargeFile = 256 << 10

// InParallel calls f with 0 to n-1, on as many processors as there are.
func InParallel(n int, f func(i int)) {
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			f(i)
		}
	}
	var wg sync.WaitGroup
	for range min(n, goruntime.GOMAXPROCS(0)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
