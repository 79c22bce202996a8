package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// Pods are listed and stopped when their root has become read-only, and removed once it is
// writable again.
func TestReadOnlyRoot(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	root := filepath.Join(m.dir, "root")
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m.once(t, "run", "--capacity", "cpu=4,memory=1100Mi,pods=20", manifest(t, "web", "Always", "[sleep]"))

	remount(unix.MS_RDONLY)
	if out := m.once(t, "ps"); !strings.Contains(out, "web") || !strings.Contains(out, "Running") {
		t.Errorf("ps: %s", out)
	}
	m.fails(t, 4, "run", "--capacity", "cpu=4,memory=1100Mi,pods=20", manifest(t, "other", "Always", "[sleep]"))
	if out := m.fails(t, 1, "down", "--all"); out != "default/web stopped\n" {
		t.Errorf("down: %s", out)
	}
	awaitProcesses(t, m.dir, 0)
	if entries, err := os.ReadDir(filepath.Join(m.dir, "state", "network", "pods")); len(entries) > 0 {
		t.Errorf("namespaces are left: %v, %v", entries, err)
	}
	if _, err := os.Stat(filepath.Join(m.dir, "state", "read-only-root")); !os.IsNotExist(err) {
		t.Errorf("the copy is left: %v", err)
	}

	remount(0)
	if out := m.once(t, "down", "--all"); out != "default/web removed\n" {
		t.Errorf("down: %s", out)
	}
}
