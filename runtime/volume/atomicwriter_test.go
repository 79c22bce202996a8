package volume

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func plain(data string) file { return file{data: []byte(data), mode: 0o644} }

// layout lists the directory with its links.
func layout(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if e.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			name += " -> " + to
		}
		out = append(out, name)
	}
	return out
}

func TestWritePayload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := writePayload(dir, payload{"a": plain("1"), "sub/b": plain("2"), "sub/deep/c": {data: []byte("3"), mode: 0o600}}); err != nil {
		t.Fatal(err)
	}
	first := layout(t, dir)
	if len(first) != 4 || !strings.HasPrefix(first[0], "..") || first[2] != "a -> ..data/a" || first[3] != "sub -> ..data/sub" {
		t.Fatalf("layout %q", first)
	}
	data, err := os.ReadFile(filepath.Join(dir, "sub/deep/c"))
	if err != nil || string(data) != "3" {
		t.Errorf("sub/deep/c: %q, %v", data, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "sub/deep")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("sub/deep: %v, %v", info.Mode(), err)
	}
	// Complete files are not changed.
	if err := writePayload(dir, payload{"a": plain("new")}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, layout(t, dir)); diff != "" {
		t.Errorf("written again: %s", diff)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "1" {
		t.Errorf("a: %q, %v", data, err)
	}
}

// A run that was killed while writing leaves a directory without a link to it, and dangling
// links.
func TestWritePayloadAfterAnInterruption(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..2020_01_01_00_00_00.1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..data/old", filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	if err := writePayload(dir, payload{"a": plain("1")}); err != nil {
		t.Fatal(err)
	}
	if l := layout(t, dir); len(l) != 3 {
		t.Errorf("layout %q", l)
	}
}

func TestWritePayloadRefuses(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", ".", "..", "../x", "/x", "a/../../x", "a//b", "a/", "..data", "..x", strings.Repeat("x", 256), strings.Repeat("x/", 2100) + "y"} {
		dir := t.TempDir()
		if err := writePayload(dir, payload{p: plain("")}); err == nil {
			t.Errorf("path %.20q is accepted", p)
		}
		if l := layout(t, dir); len(l) > 0 {
			t.Errorf("path %.20q: %q is left", p, l)
		}
	}
}

func TestValidatePayloadRefusesPathsBelowFiles(t *testing.T) {
	t.Parallel()
	if err := validatePayload(payload{"a": plain(""), "a/b/c": plain("")}); err == nil {
		t.Error("a is a file and a directory")
	}
	if err := validatePayload(payload{"a": plain(""), "b/a": plain(""), "ab/c": plain("")}); err != nil {
		t.Error(err)
	}
}

func FuzzWritePayload(f *testing.F) {
	f.Add("a", "b/c", "1")
	f.Add("a/b", "a/b/c", "")
	f.Add("..data", "x", "2")
	f.Fuzz(func(t *testing.T, one, two, data string) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "volume")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		err := writePayload(dir, payload{one: plain(data), two: plain("2")})
		if entries, rerr := os.ReadDir(outer); rerr != nil || len(entries) != 1 {
			t.Fatalf("something was written outside: %v, %v", entries, rerr)
		}
		if err != nil {
			if validatePayload(payload{one: plain(data), two: plain("2")}) == nil {
				t.Errorf("%q and %q pass the check, but: %v", one, two, err)
			}
			return
		}
		for _, p := range slices.Compact([]string{one, two}) {
			if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
				t.Error(fmt.Errorf("%q: %w", p, err))
			}
		}
	})
}

// TestReplacePayload: files that differ are replaced by one rename, and what is gone leaves no link.
func TestReplacePayload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := payload{"a": plain("1"), "gone": plain("2"), "sub/b": plain("3")}
	if err := writePayload(dir, old); err != nil {
		t.Fatal(err)
	}
	first := layout(t, dir)
	prepared := 0
	prepare := func(fresh string) error {
		prepared++
		if text, err := os.ReadFile(filepath.Join(fresh, "a")); err != nil || string(text) != "new" {
			t.Errorf("prepared with %q, %v", text, err)
		}
		return nil
	}
	if err := replacePayload(dir, old, prepare); err != nil || prepared != 0 {
		t.Errorf("the same files: prepared %d times, %v", prepared, err)
	}
	if diff := cmp.Diff(first, layout(t, dir)); diff != "" {
		t.Errorf("the same files were written: %s", diff)
	}
	held, err := os.Open(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := replacePayload(dir, payload{"a": plain("new"), "sub/b": plain("3"), "more": plain("4")}, prepare); err != nil || prepared != 1 {
		t.Fatalf("prepared %d times, %v", prepared, err)
	}
	now := layout(t, dir)
	if len(now) != 5 || now[0] == first[0] || now[1] == first[1] {
		t.Errorf("layout %q, before %q", now, first)
	}
	if diff := cmp.Diff([]string{"a -> ..data/a", "more -> ..data/more", "sub -> ..data/sub"}, now[2:]); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{"a": "new", "sub/b": "3", "more": "4"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if text, err := io.ReadAll(held); err != nil || string(text) != "1" {
		t.Errorf("the old file: %q, %v", text, err)
	}
	failed := func(string) error { return os.ErrPermission }
	if err := replacePayload(dir, old, failed); err == nil {
		t.Error("no error")
	}
	// The path is longer than the kernel allows only together with that of the directory.
	if err := replacePayload(dir, payload{"a": plain("5"), strings.Repeat(strings.Repeat("x", 250)+"/", 16) + strings.Repeat("y", 79): plain("6")}, prepare); err == nil {
		t.Error("a path that is too long: no error")
	}
	if diff := cmp.Diff(now, layout(t, dir)); diff != "" {
		t.Errorf("after an error: %s", diff)
	}
}
