package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/runonce/runonce/internal/atomicfile"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	for _, text := range []string{"long text", "short"} {
		if err := atomicfile.Write(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v; want %q", got, err, text)
		}
	}
	wantFiles(t, filepath.Dir(path), 1)
}

func TestWriteLeavesNothingOnFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// No file can take the place of a directory.
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(filepath.Join(dir, "a"), nil, 0o600); err == nil {
		t.Error("no error")
	}
	wantFiles(t, dir, 1)
}

func wantFiles(t *testing.T, dir string, n int) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) != n {
		t.Errorf("files %v, %v; want %d", left, err, n)
	}
}
