package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInheritedFiles: pods do not keep files of the caller open, such as the lock that flock(1) holds
// while runonce runs.
func TestInheritedFiles(t *testing.T) {
	b := newBox(t, "")
	file, err := os.Create(filepath.Join(b.dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := b.command(t, "run", b.upArgs(t, directory(t, pod("web", "Always", "sleep")))...)
	cmd.ExtraFiles = append(make([]*os.File, 8), file) // the program uses low numbers itself
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_ = file.Close()
	again, err := os.Open(filepath.Join(b.dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("the lock is still held: %v", err)
	}
}
