package payload

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func file(data string) File { return File{Data: []byte(data), Mode: 0o644} }

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

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Write(dir, Files{"a": file("1"), "sub/b": file("2"), "sub/deep/c": {Data: []byte("3"), Mode: 0o600}}); err != nil {
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
	// What is there stays.
	if err := Write(dir, Files{"a": file("new")}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, layout(t, dir)); diff != "" {
		t.Errorf("written again: %s", diff)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "1" {
		t.Errorf("a: %q, %v", data, err)
	}
}

// A run that was killed half-way leaves a directory that nothing points to, and links that
// point to nothing.
func TestWriteAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..2020_01_01_00_00_00.1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..data/old", filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, Files{"a": file("1")}); err != nil {
		t.Fatal(err)
	}
	if l := layout(t, dir); len(l) != 3 {
		t.Errorf("layout %q", l)
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", ".", "..", "../x", "/x", "a/../../x", "a//b", "a/", "..data", "..x", strings.Repeat("x", 256), strings.Repeat("x/", 2100) + "y"} {
		dir := t.TempDir()
		if err := Write(dir, Files{p: file("")}); err == nil {
			t.Errorf("path %.20q is taken", p)
		}
		if l := layout(t, dir); len(l) > 0 {
			t.Errorf("path %.20q: %q is left", p, l)
		}
	}
}

func TestCheckRefusesAFileInTheWay(t *testing.T) {
	t.Parallel()
	if err := Check(Files{"a": file(""), "a/b/c": file("")}); err == nil {
		t.Error("a is a file and a directory")
	}
	if err := Check(Files{"a": file(""), "b/a": file(""), "ab/c": file("")}); err != nil {
		t.Error(err)
	}
}

func FuzzWrite(f *testing.F) {
	f.Add("a", "b/c", "1")
	f.Add("a/b", "a/b/c", "")
	f.Add("..data", "x", "2")
	f.Fuzz(func(t *testing.T, one, two, data string) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "volume")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		err := Write(dir, Files{one: file(data), two: file("2")})
		if entries, rerr := os.ReadDir(outer); rerr != nil || len(entries) != 1 {
			t.Fatalf("something was written outside: %v, %v", entries, rerr)
		}
		if err != nil {
			if Check(Files{one: file(data), two: file("2")}) == nil {
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
