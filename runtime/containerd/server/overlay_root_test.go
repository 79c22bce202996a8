package server

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestTryOverlay: neither a full file system nor what cannot be removed of a trial means that there are
// no overlays.
func TestTryOverlay(t *testing.T) {
	roottest.Require(t)
	for name, tc := range map[string]struct {
		inodes string
		busy   bool
	}{
		"fine":     {inodes: "0"},
		"left":     {inodes: "0", busy: true},
		"no space": {inodes: "5"}, // the root directory, that of the trial and three in it
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mount := func(dir string) {
				t.Helper()
				if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes="+tc.inodes); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
			}
			mount(dir)
			if busy := filepath.Join(dir, "overlay-trial", "busy"); tc.busy {
				if err := os.MkdirAll(busy, 0o700); err != nil {
					t.Fatal(err)
				}
				mount(busy)
			}
			if err := TryOverlay(dir); err != nil {
				t.Error(err)
			}
		})
	}
}
