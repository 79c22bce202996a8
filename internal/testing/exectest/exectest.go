// Package exectest writes programs for tests to run.
package exectest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Write writes a program, and the directory it is in. The program can be run at once: a process that is
// started meanwhile by a parallel test does not get the file open, with which the kernel would say
// "text file busy".
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}
