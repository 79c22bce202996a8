package main

import (
	"os"
	"testing"

	"github.com/runonce/runonce/runtime/shim"
)

// TestMain lets the test binary be the shim, too: a build without the packed shim runs a copy of
// itself.
func TestMain(m *testing.M) {
	if shim.Invoked(os.Args) {
		os.Exit(shim.Main())
	}
	os.Exit(m.Run())
}
