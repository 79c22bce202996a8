package images

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"

	"github.com/runonce/runonce/internal/roottest"
)

// TestSweep: the mounts of dead processes are removed, and nothing else.
func TestSweep(t *testing.T) {
	roottest.Require(t)
	c := New(t.TempDir(), nil)
	// A PID that no process can have, and that of a running one.
	gone, here := filepath.Join(c.users, "mount-4194305-1"), filepath.Join(c.users, fmt.Sprintf("mount-%d-1", os.Getpid()))
	for _, path := range []string{gone, here} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		m := mount.Mount{Type: "tmpfs", Source: "tmpfs"}
		if err := m.Mount(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = mount.UnmountAll(path, 0) })
	}
	if err := c.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("the mount of a process that is gone is still there: %v", err)
	}
	if err := os.Remove(here); err == nil {
		t.Error("the mount of a process that lives was taken away")
	}
}

func TestMountedIsGoneAfterwards(t *testing.T) {
	roottest.Require(t)
	c := New(filepath.Join(t.TempDir(), "users"), nil)
	var seen string
	err := c.mounted([]mount.Mount{{Type: "tmpfs", Source: "tmpfs"}}, func(root string) error {
		seen = root
		return os.WriteFile(filepath.Join(root, "file"), nil, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(seen); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", seen, err)
	}
}
