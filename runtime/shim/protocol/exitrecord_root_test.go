package protocol

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/hack/roottest"
)

// TestEndOnAFullDisk: an end is recorded when there is neither space nor a file left.
func TestEndOnAFullDisk(t *testing.T) {
	roottest.Require(t)
	for _, options := range []string{"size=64k", "nr_inodes=10"} {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		path := filepath.Join(dir, "a.json")
		want := Record{ContainerID: "a", StartedAt: time.Unix(1, 0).UTC()}
		if err := Reserve(path); err != nil {
			t.Fatal(err)
		}
		if err := want.Write(path); err != nil {
			t.Fatal(err)
		}
		var full error
		for i := 0; full == nil; i++ {
			full = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, 1024), 0o600)
		}
		want.FinishedAt, want.ExitCode = time.Unix(2, 0).UTC(), 7
		if err := want.Write(path); err != nil {
			t.Errorf("%s, %v: %v", options, full, err)
		}
		if got, err := Read(path); err != nil || got != want {
			t.Errorf("%s: read %+v, %v", options, got, err)
		}
		if _, err := os.Stat(ReservePath(path)); err == nil {
			t.Errorf("%s: the reserved file is left", options)
		}
	}
}
