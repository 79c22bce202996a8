package startup

import (
	goruntime "runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestCollectGarbage: nothing is collected before, late for the first time, and then as usual.
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
	if got := now(); got != first {
		t.Errorf("GOGC=%d for the first collection", got)
	}
	for deadline := time.Now().Add(time.Minute); now() != goDefault; time.Sleep(time.Millisecond) {
		goruntime.GC()
		if time.Now().After(deadline) {
			t.Fatalf("GOGC=%d after a collection", now())
		}
	}
}
