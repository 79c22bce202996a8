package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRootOnOverlay: in a container, the root directory is on an overlay, in which overlays
// cannot have their files.
func TestRootOnOverlay(t *testing.T) {
	b := newBox(t, "")
	root := filepath.Join(b.dir, "root")
	layers := t.TempDir()
	if err := unix.Mount("tmpfs", layers, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(layers, 0) })
	for _, dir := range []string{root, layers + "/lower", layers + "/upper", layers + "/work"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	options := "lowerdir=" + layers + "/lower,upperdir=" + layers + "/upper,workdir=" + layers + "/work"
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, 0) })
	for _, name := range []string{"first", "second"} {
		r := b.up(t, directory(t, pod(name, "Never", "do", "exit 0")), 0, "--until", "completed")
		if got := r.report.outcomes(); len(got) != 1 || got[0] != name+"=Succeeded" {
			t.Errorf("%q\n%s", got, r.stderr)
		}
	}
	if r := b.run(t, "down", "--all"); r.code != 0 {
		t.Errorf("down --all: exit code %d\n%s", r.code, r.stderr)
	}
	if left := b.glob(t, "root/overlay-trial"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
