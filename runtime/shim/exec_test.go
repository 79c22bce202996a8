package shim

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestHold: a FIFO that nobody reads can be opened for writing while it is held.
func TestHold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	opens := func() bool {
		f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			err = f.Close()
		}
		return err == nil
	}
	var e execs
	e.outputs.Store(execKey("c", "x"), path)
	e.hold("c", "other")()
	release := e.hold("c", "x")
	if !opens() {
		t.Error("it cannot be opened though it is held")
	}
	release()
	if opens() {
		t.Error("it is held still")
	}
	e.hold("c", "x")() // it was started
	e.outputs.Store(execKey("c", "y"), filepath.Join(t.TempDir(), "none"))
	e.hold("c", "y")()
}
