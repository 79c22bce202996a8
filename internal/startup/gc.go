// Package startup makes the start of the program cheap. Only package main may import it: in all others,
// tests among them, the garbage collector must run from the beginning.
package startup

import (
	goruntime "runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// goDefault is the value of GOGC if it is not set.
	goDefault = 100
	// smallHeap is the size in bytes up to which the heap grows before garbage is collected: three times while 30 pods
	// start. With 8 MB the first time, and then Go's own 4 MB, that was six times.
	smallHeap = 12 << 20
)

// The garbage collector does not run while packages are initialized. This variable is initialized
// before those of packages that import more.
var percent = debug.SetGCPercent(-1)

// CollectGarbage lets the garbage collector run: as GOGC says if that was set, and otherwise less often while the heap
// is small. Package main must call it.
func CollectGarbage() {
	if percent != goDefault {
		debug.SetGCPercent(percent)
		return
	}
	adapt(0)
}

// adapt sets GOGC, which was before, by what is in use, and does so again after each collection.
func adapt(before int) {
	inUse := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(inUse)
	now := percentFor(inUse[0].Value.Uint64())
	if now < before*9/10 || now > before*11/10 { // each change stops the world
		debug.SetGCPercent(now)
		before = now
	}
	goruntime.AddCleanup(new([2]*int), adapt, before)
}

// percentFor returns the GOGC with which garbage is collected at twice what is in use, in bytes, but not before the heap
// is small no more. Go takes what is in use for 4 MB at least.
func percentFor(inUse uint64) int {
	return max(goDefault, int(smallHeap*100/max(inUse, 4<<20))-100)
}
