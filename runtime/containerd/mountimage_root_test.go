package containerd_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/runonce/runonce/runtime/engine"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/volume"
)

// TestMountImage: an image is mounted read-only, once for each key, and again after a reboot;
// Release removes everything.
func TestMountImage(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	if _, err := e.Image(t.Context(), boxRef); err != nil { // which unpacks it
		t.Fatal(err)
	}
	before := snapshots(t, p)
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := volume.UnmountBelow(volume.HostMounts{}, dir); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		for range 2 { // what is mounted stays
			if err := e.Mount(t.Context(), boxRef, "key", dir); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "bin", "box")); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing to an image: %v, want EROFS", err)
		}
		points, err := volume.HostMounts{}.Below(dir)
		if err != nil || len(points) != 1 {
			t.Errorf("mounts %v, %v", points, err)
		}
		// As a reboot does.
		if err := volume.UnmountBelow(volume.HostMounts{}, dir); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := e.Release(t.Context(), "key"); err != nil {
			t.Error(err)
		}
	}
	if err := e.Mount(t.Context(), "localhost/none:1", "other", dir); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("an image that is not there: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if after := snapshots(t, p); after > before {
		t.Errorf("%d snapshots, there were %d", after, before)
	}
}

// TestCopyFromImage: the content of a directory is copied with its owners and modes, nothing of one
// that the image does not have, and no view of the image is left.
func TestCopyFromImage(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	if _, err := e.Image(t.Context(), boxRef); err != nil {
		t.Fatal(err)
	}
	before := snapshots(t, p)
	bin, none := t.TempDir(), t.TempDir()
	if err := os.Chmod(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := e.CopyFromImage(t.Context(), boxRef, map[string]string{"/bin": bin, "/bin/none": none}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(bin, "box")); err != nil || info.Mode() != 0o755 {
		t.Errorf("copied %v, %v", info, err)
	}
	if info, err := os.Stat(bin); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("copied to %v, %v", info, err)
	}
	if left, err := os.ReadDir(none); err != nil || len(left) > 0 {
		t.Errorf("copied %v, %v, of a directory that is not there", left, err)
	}
	if err := e.CopyFromImage(t.Context(), "localhost/none:1", nil); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("an image that is not there: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if after := snapshots(t, p); after > before {
		t.Errorf("%d snapshots, there were %d", after, before)
	}
}

// snapshots counts the directories of snapshots on disk.
func snapshots(t *testing.T, p testDirs) int {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(p.dir, "root", "io.containerd.snapshotter.v1.*", "snapshots", "*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("snapshots: %v, %v", all, err)
	}
	return len(all)
}

// TestUsage: what a container writes to its own root is measured, and a removed container has
// size 0.
func TestUsage(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	c := p.box(t, "writes", "do", "fill /file 2", "echo ready", "sleep")
	c.Spec.Root.Readonly = false
	startUp(t, e, c)
	if n, err := e.Usage(t.Context(), c.ID); err != nil || n < 2<<20 || n > 3<<20 {
		t.Errorf("%d bytes, %v, want about 2 MiB", n, err)
	}
	if n, err := e.Usage(t.Context(), "none"); err != nil || n != 0 {
		t.Errorf("a container that is gone: %d bytes, %v", n, err)
	}
}
