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

func TestCreate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	var files [2]*atomicfile.File
	for i := range files {
		f, err := atomicfile.Create(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("text"); err != nil {
			t.Fatal(err)
		}
		files[i] = f
	}
	if err := files[0].Abort(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is there before Commit: %v", err)
	}
	if err := files[1].Commit(); err != nil {
		t.Error(err)
	}
	if err := files[1].Abort(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
	wantFiles(t, filepath.Dir(path), 1)
}
