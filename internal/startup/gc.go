// Package startup makes the start of the program cheap.
package startup

import (
	goruntime "runtime"
	"runtime/debug"
)

// usual is the default of GOGC. With first, the garbage collector does not run before there are 8 MB,
// about what it takes to start a single pod.
const (
	usual = 100
	first = 200
)

// The garbage collector does not run while packages are initialized. This variable is initialized
// before those of packages that import more.
var percent = debug.SetGCPercent(-1)

// CollectGarbage lets the garbage collector run: as GOGC says, but later for the first time unless
// that was set. Package main must call it.
func CollectGarbage() {
	if percent != usual {
		debug.SetGCPercent(percent)
		return
	}
	debug.SetGCPercent(first)
	goruntime.AddCleanup(new([2]*int), func(int) { debug.SetGCPercent(usual) }, 0)
}
