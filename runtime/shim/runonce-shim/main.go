// Runonce-shim is the slim second program of runonce; see package shim.
package main

import (
	"os"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/shim"
)

func main() {
	process.RelaxMonitor()
	os.Exit(shim.Main())
}
