package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDiskUsage(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(i)
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "a"), data, 0o600), os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")),
		os.Mkdir(filepath.Join(dir, "sub"), 0o700), os.WriteFile(filepath.Join(dir, "sub", "c"), data, 0o600),
		os.WriteFile(filepath.Join(outside, "d"), data, 0o600), os.Symlink(outside, filepath.Join(dir, "out")),
		os.Truncate(filepath.Join(outside, "d"), 1<<40),
	); err != nil {
		t.Fatal(err)
	}
	got, err := diskUsage(t.Context(), dir)
	if err != nil || got < 2<<20 || got > 2<<20+64<<10 {
		t.Errorf("%d bytes, %v, want about 2 MiB", got, err)
	}
	if got, err := diskUsage(t.Context(), filepath.Join(dir, "none")); got != 0 || err != nil {
		t.Errorf("an absent directory: %d, %v", got, err)
	}
	if got, err := diskUsage(t.Context(), outside); err != nil || got > 4<<20 {
		t.Errorf("a sparse file: %d bytes, %v", got, err)
	}
}
