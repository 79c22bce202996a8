// Package startup makes the start of the program cheap. Only package main may import it: in all others,
// tests among them, the garbage collector must run from the beginning.
package startup

import (
	goruntime "runtime"
	"runtime/debug"
)

// Values of GOGC. With first, the garbage collector does not run before there are 8 MB, more than the
// packages leave when they are initialized. That saves "runonce version" a collection, which is a tenth
// of its CPU time and 0.8 of 6.3 MiB of anonymous memory.
const (
	goDefault = 100
	first     = 200
)

// The garbage collector does not run while packages are initialized. This variable is initialized
// before those of packages that import more.
var percent = debug.SetGCPercent(-1)

// CollectGarbage lets the garbage collector run: as GOGC says if that was set, and otherwise later for
// the first time. Package main must call it.
func CollectGarbage() {
	if percent != goDefault {
		debug.SetGCPercent(percent)
		return
	}
	debug.SetGCPercent(first)
	goruntime.AddCleanup(new([2]*int), func(int) { debug.SetGCPercent(goDefault) }, 0)
}
