package containerd

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/runonce/runonce/internal/flock"
)

func TestSweepCaptures(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(t.TempDir(), "exec")
	if err := sweepCaptures(parent); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	living, err := newCapture(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer living.close()
	dead, empty := filepath.Join(parent, "1"), filepath.Join(parent, "2")
	for _, dir := range []string{dead, empty} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dead, captureName), 0o600); err != nil {
		t.Fatal(err)
	}
	making, err := flock.Open(parent, syscall.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	if err := sweepCaptures(parent); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(empty); err != nil {
		t.Errorf("removed while one was being made: %v", err)
	}
	if err := making.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sweepCaptures(parent); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{dead, empty} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	if _, err := os.Stat(living.path); err != nil {
		t.Errorf("of a living process: %v", err)
	}
}
