package server

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProtect(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "io.containerd.metadata.v1.bolt")
	for range 2 {
		if err := protect(root); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
		// As containerd makes it.
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
}
