package startup

import (
	"runtime/debug"
	"testing"
)

// TestCollectGarbage: nothing is collected before, and everything as usual afterwards.
func TestCollectGarbage(t *testing.T) {
	t.Cleanup(func() { debug.SetGCPercent(-1) }) // as before, for -count
	if before := debug.SetGCPercent(-1); before != -1 {
		t.Errorf("GOGC=%d before the start", before)
	}
	CollectGarbage()
	if after := debug.SetGCPercent(percent); after != percent || percent == -1 {
		t.Errorf("GOGC=%d after the start, was %d", after, percent)
	}
}
