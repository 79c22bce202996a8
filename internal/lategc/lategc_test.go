package lategc

import (
	"runtime/debug"
	"testing"
)

// TestStart: nothing is collected before, and everything as usual afterwards.
func TestStart(t *testing.T) {
	t.Cleanup(func() { debug.SetGCPercent(-1) }) // as before, for -count
	if before := debug.SetGCPercent(-1); before != -1 {
		t.Errorf("GOGC=%d before the start", before)
	}
	Start()
	if after := debug.SetGCPercent(percent); after != percent || percent == -1 {
		t.Errorf("GOGC=%d after the start, was %d", after, percent)
	}
}
