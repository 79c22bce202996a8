// Package lategc keeps the garbage collector from running while the packages of the program are
// initialized: nearly everything that they allocate stays. It is for package main alone, which
// must call Start.
package lategc

import "runtime/debug"

// percent is initialized before the packages that allocate most, because this one imports so little.
var percent = debug.SetGCPercent(-1)

// Start lets the garbage collector run, as GOGC says.
func Start() { debug.SetGCPercent(percent) }
