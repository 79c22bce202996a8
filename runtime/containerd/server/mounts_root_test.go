package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"

	"github.com/runonce/runonce/internal/testing/roottest"
)

func TestSweepMounts(t *testing.T) {
	roottest.Require(t)
	dir := filepath.Join(t.TempDir(), "mounts")
	left := filepath.Join(dir, "containerd-mount1")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	m := mount.Mount{Type: "tmpfs", Source: "tmpfs"}
	if err := m.Mount(left); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mount.UnmountAll(left, 0) })
	if err := sweepMounts(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the mount of a killed process is still there: %v", err)
	}
	// What containerd mounts from now on is below the directory.
	err := mount.WithTempMount(t.Context(), []mount.Mount{m}, func(root string) error {
		if filepath.Dir(root) != dir {
			t.Errorf("mounted at %s", root)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
