package backend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/runtime/image"
)

// TestImportNothing: a directory without anything is an error, and what is no archive is bad.
func TestImportNothing(t *testing.T) {
	t.Parallel()
	e := &machineEngine{}
	dir := t.TempDir()
	if _, err := e.Import(t.Context(), dir, ""); err == nil || err.Error() != dir+": no image archive or OCI layout in this directory" {
		t.Errorf("empty: %v", err)
	}
	junk := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(junk, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, junk} {
		in, err := e.Import(t.Context(), path, "")
		if err != nil || len(in.Bad) != 1 || in.Bad[0].Refs != nil || !strings.HasPrefix(in.Err().Error(), junk+": not an image archive") {
			t.Errorf("junk: %+v, %v", in, err)
		}
		if _, err := Archives(path); err == nil || !strings.HasPrefix(err.Error(), junk+": not an image archive") {
			t.Errorf("junk: %v", err)
		}
	}
	if _, err := e.Import(t.Context(), filepath.Join(dir, "none"), ""); err == nil {
		t.Error("a path that does not exist is no error")
	}
}

// TestConflict: archives may have the same image, but not different ones of one name.
func TestConflict(t *testing.T) {
	t.Parallel()
	one := func(path, ref, digest string) archive {
		return archive{Archive: image.Archive{Path: path}, refs: map[string]string{ref: digest}}
	}
	equal := func(_, digest, other string) bool { return digest == other }
	for _, tt := range []struct {
		name string
		in   []archive
		want string
	}{
		{"none", nil, ""},
		{"same", []archive{one("a", "x:1", "1"), one("b", "x:1", "1")}, ""},
		{"others", []archive{one("a", "x:1", "1"), one("b", "x:2", "2")}, ""},
		{"different", []archive{one("a", "x:1", "1"), one("b", "y:1", "1"), one("c", "x:1", "2")}, `image "x:1" is in a and, with another digest, in c: remove one of them`},
	} {
		if err := conflict(tt.in, equal); (err != nil) != (tt.want != "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
