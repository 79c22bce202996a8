package logs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPath(t *testing.T) {
	t.Parallel()
	pod := Pod{Namespace: "ns", Name: "web", UID: "123"}
	if got, want := pod.Dir("/l"), "/l/ns_web_123"; got != want {
		t.Errorf("Dir = %q, want %q", got, want)
	}
}

// fill makes empty files, or files with the given text.
func fill(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := func(previous bool, name string) {
		t.Helper()
		got, err := Newest(dir, previous)
		if name == "" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want fs.ErrNotExist", err)
		}
		if name != "" && (err != nil || got != filepath.Join(dir, name)) {
			t.Errorf("newest is %s, %v, want %s", got, err, name)
		}
	}
	want(false, "")
	if _, err := Newest(filepath.Join(dir, "none"), false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: error %v, want fs.ErrNotExist", err)
	}
	fill(t, dir, map[string]string{"9.log": "", "x.log": "", "-1.log": "", "011.log": "", "12.txt": "", "11": ""})
	want(false, "9.log")
	want(true, "")
	fill(t, dir, map[string]string{"0.log": "", "10.log": "", "10.log.20260102-030405": ""})
	want(false, "10.log")
	want(true, "9.log")
	// While it is rotated.
	fill(t, dir, map[string]string{"12.log.20260102-030405": "", "13.log.tmp": "", "14.log.": ""})
	want(false, "12.log")
	want(true, "10.log")
}

func TestRotatedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, map[string]string{
		"1.log": "", "1.log.20260102-030406": "", "1.log.20260102-030405": "", "1.log.tmp": "", "1.log.20260102x030405": "",
		"11.log": "", "0.log": "",
	})
	got, err := rotatedFiles(filepath.Join(dir, "1.log"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1.log.20260102-030405", "1.log.20260102-030406"}
	for i, w := range want {
		want[i] = filepath.Join(dir, w)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func fillFile(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}
