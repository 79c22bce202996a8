package images

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestSweep: the mount of a killed process is removed with its directory.
func TestSweep(t *testing.T) {
	roottest.Require(t)
	c := New(t.TempDir(), nil)
	mine, err := process.TempDir(c.users)
	if err != nil {
		t.Fatal(err)
	}
	// A PID that no process can have.
	gone := filepath.Join(c.users, strings.Replace(filepath.Base(mine), strconv.Itoa(os.Getpid()), "4194305", 1))
	for _, path := range []string{gone, mine} {
		if err := os.MkdirAll(path, 0o700); err != nil {
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
	if err := os.Remove(mine); err == nil {
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
