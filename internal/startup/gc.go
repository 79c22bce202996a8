// Package startup makes the start of the program cheap.
package startup

import "runtime/debug"

// The garbage collector does not run while packages are initialized: nearly everything that they
// allocate stays. This variable is initialized before those of packages that import more.
var percent = debug.SetGCPercent(-1)

// CollectGarbage lets the garbage collector run, as GOGC says. Package main must call it.
func CollectGarbage() { debug.SetGCPercent(percent) }
