// Package roottest says which tests need root, or something else that a machine may lack.
package roottest

import (
	"os"
	"testing"
)

// Require skips the test unless it runs as root, and with -short, which leaves out whatever
// starts containers or changes the machine. With CI=true a test that is not run as root
// fails instead: nobody would notice that it was skipped.
func Require(t testing.TB) {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("needs root, and -short leaves out such tests")
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("needs root")
	default:
		t.Skip("needs root")
	}
}

// Lacks skips a test that needs a program, a feature of the kernel or a right that is missing. With CI=true it
// fails instead, as nobody would notice that it was skipped: what tests need is to be installed.
func Lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("this machine lacks what the test needs: "+format, args...)
	}
	t.Skipf(format, args...)
}
