package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/roottest"
)

// TestRootOnOverlay: pods run also where no overlay can be in the root, as in a container whose own file
// system is one.
func TestRootOnOverlay(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, "")
	dir := func(name string) string {
		t.Helper()
		path := filepath.Join(m.dir, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	root := dir("root")
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir("lower"), dir("upper"), dir("work"))
	if err := unix.Mount("overlay", root, "overlay", 0, layers); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.once(t, "down", "--all")
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m.once(t, "images", "import", boxImages(t))
	m.once(t, "run", "--capacity", "cpu=4,memory=1100Mi,pods=20", "--settle", "0", "--max-retries", "0", manifest(t, "web", "Always", "[sleep]"))
}

// TestRootNoExec: no pod can run with a root whose file system is mounted noexec, and no retry helps.
func TestRootNoExec(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, "")
	root := filepath.Join(m.dir, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.once(t, "down", "--all")
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	m.once(t, "images", "import", boxImages(t))
	out := m.fails(t, 1, "run", "--capacity", "cpu=4,memory=1100Mi,pods=20", "--settle", "0", manifest(t, "web", "Always", "[sleep]"))
	if !strings.Contains(out, "mounted noexec; use another --root") || strings.Contains(out, "gave up after") {
		t.Errorf("%s", out)
	}
}
