// Package roottest says which tests need root.
package roottest

import (
	"os"
	"testing"
)

// Require skips a test that needs root where there is none, and with -short one that would
// start containers or change the machine. In CI a test that is skipped for want of root would
// not be missed, so there it fails.
func Require(t testing.TB) {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("needs root, and -short leaves such tests out")
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("needs root")
	default:
		t.Skip("needs root")
	}
}
