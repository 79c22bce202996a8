package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestFullRoot: an error tells which file system is full. On one that has no inodes left, pods are
// listed and removed.
func TestFullRoot(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, "")
	root := filepath.Join(m.dir, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=16m,nr_inodes=1000"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.once(t, "down", "--all")
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m.once(t, "images", "import", boxImages(t))
	run := []string{"run", "--capacity", "cpu=4,memory=1100Mi,pods=20", "--settle", "0", manifest(t, "web", "Always", "[sleep]")}

	var free unix.Statfs_t
	if err := unix.Statfs(root, &free); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(root, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, int64(free.Bfree)*free.Bsize-27<<20/10) // without disk pressure, and less than the image needs
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	if out, want := m.fails(t, 1, run...), "no space left on device: free space on the file system at "+root; !strings.Contains(out, want) {
		t.Errorf("%s\nwant %q", out, want)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	m.once(t, run...)
	for i := 0; err == nil; i++ {
		err = os.WriteFile(fmt.Sprintf("%s%d", filler, i), nil, 0o600)
	}
	if out := m.once(t, "ps"); !strings.Contains(out, "Running") {
		t.Errorf("ps: %s", out)
	}
	if out := m.once(t, "down", "--all"); out != "default/web removed\n" {
		t.Errorf("down: %s", out)
	}
}
