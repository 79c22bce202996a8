// Runonce-shim is the slim second program of runonce; see package shim.
package main

import (
	"os"

	"github.com/runonce/runonce/runtime/shim"
)

func main() { os.Exit(shim.Main()) }
