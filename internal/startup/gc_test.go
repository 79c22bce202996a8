package startup

import (
	goruntime "runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestCollectGarbage: nothing is collected before, and then as the user says, or by what is in use.
func TestCollectGarbage(t *testing.T) {
	now := func() int {
		n := debug.SetGCPercent(-1)
		debug.SetGCPercent(n)
		return n
	}
	given := percent
	t.Cleanup(func() { percent = given; debug.SetGCPercent(-1) }) // as before, for -count
	if before := now(); before != -1 {
		t.Errorf("GOGC=%d before the start", before)
	}
	percent = 50
	CollectGarbage()
	if got := now(); got != 50 {
		t.Errorf("GOGC=%d, and was set to 50", got)
	}
	percent = goDefault
	CollectGarbage()
	if got := now(); got != 200 {
		t.Errorf("GOGC=%d for the first collection", got)
	}
	want := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); now() != n; time.Sleep(time.Millisecond) {
			goruntime.GC()
			if time.Now().After(deadline) {
				t.Fatalf("GOGC=%d after a collection, want %d", now(), n)
			}
		}
	}
	used := make([]byte, 64<<20)
	want(goDefault)
	goruntime.KeepAlive(used)
	want(200)
}

func TestPercentFor(t *testing.T) {
	for inUse, want := range map[uint64]int{0: 200, 1 << 20: 200, 4 << 20: 200, 5 << 20: 140, 6 << 20: 100, 1 << 30: 100} {
		if got := percentFor(inUse); got != want {
			t.Errorf("%d bytes: %d, want %d", inUse, got, want)
		}
	}
}
