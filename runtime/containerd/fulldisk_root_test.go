package containerd_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/engine"
)

// smallDisk returns directories on a file system of the given size, with a daemon of the version
// on the same one, if any.
func smallDisk(t *testing.T, size string, version daemon.Version) testDirs {
	t.Helper()
	roottest.Require(t)
	dir, err := os.MkdirTemp("/run", "rt-")
	if err != nil {
		t.Fatal(err)
	}
	p := testDirs{dir: dir, logs: t.TempDir()}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(dir, syscall.MNT_DETACH), os.Remove(dir)); err != nil {
			t.Error(err)
		}
	})
	if version == "" {
		return p
	}
	bin := daemon.Programs(t, version)
	d, err := daemon.Start(t.Context(), bin, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	p.address = d.Socket
	return p
}

// TestFullDisk: what an image has used that does not fit is free again, and the engine works on.
func TestFullDisk(t *testing.T) {
	for _, version := range []daemon.Version{"", daemon.Current, daemon.Debian} {
		t.Run("engine "+string(version), func(t *testing.T) { testFullDisk(t, smallDisk(t, "48m", version)) })
	}
}

func testFullDisk(t *testing.T, p testDirs) {
	t.Helper()
	e := p.openWithBox(t)
	root := p.dir
	for _, tc := range []struct {
		name        string
		compression ociimage.Compression
	}{
		{"unpacking", ociimage.Gzip},
		{"importing", ociimage.None},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const ref = "localhost/big:1"
			var archive bytes.Buffer
			err := ociimage.Build(&archive, ociimage.Image{
				Ref: ref, Compression: tc.compression,
				Layers: [][]ociimage.File{{{Path: "small", Body: []byte("x")}}, {{Path: "big", Body: make([]byte, 60<<20)}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			before := used(t, root)
			if _, err = e.ImportArchive(t.Context(), archiveOf(t, archive.Bytes())); err == nil {
				_, err = e.Image(t.Context(), ref)
			}
			if !errors.Is(err, syscall.ENOSPC) || !failure.IsPermanent(err) {
				t.Errorf("error %v", err)
			}
			if after := used(t, root); after > before+(1<<20) {
				t.Errorf("%d bytes are used, %d were before", after, before)
				if dirs, _ := filepath.Glob(filepath.Join(root, "*", "*", "*")); dirs != nil {
					t.Log(dirs)
				}
			}
		})
	}
	if err := e.Start(t.Context(), p.box(t, "a", "exit", "0")); err != nil {
		t.Fatal(err)
	}
	eventually(t, e, "a", engine.StateExited)
	if err := e.Remove(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// used returns how many bytes of the file system are used.
func used(t *testing.T, path string) uint64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		t.Fatal(err)
	}
	return (s.Blocks - s.Bfree) * uint64(s.Bsize)
}
