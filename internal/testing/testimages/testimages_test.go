package testimages_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/runonce/runonce/internal/testing/testimages"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	images, err := testimages.Write(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(images) == 0 {
		t.Fatal("no images")
	}
	for _, img := range images {
		if info, err := os.Stat(filepath.Join(dir, img.Name+".tar")); err != nil || info.Size() < 100<<10 {
			t.Errorf("archive of %s: %v, %v", img.Name, info, err)
		}
		if img.Ref == "" || len(img.Config.Entrypoint) == 0 {
			t.Errorf("image %s: no ref or entrypoint", img.Name)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != len(images) {
		t.Errorf("%d files in the directory, want %d, %v", len(left), len(images), err)
	}
}

func TestWriteUnknown(t *testing.T) {
	t.Parallel()
	if _, err := testimages.Write(t.Context(), t.TempDir(), "nope"); err == nil {
		t.Error("no error")
	}
}
