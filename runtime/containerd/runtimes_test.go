package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindProgram(t *testing.T) {
	own, other := t.TempDir(), t.TempDir()
	t.Setenv("PATH", own)
	dirs := []string{other}
	want := func(name, path, words string) {
		t.Helper()
		got, err := findProgram(name, dirs)
		if got != path || (err != nil) != (words != "") || err != nil && (!strings.Contains(err.Error(), words) || !errors.Is(err, ErrUnusable)) {
			t.Errorf("findProgram(%q): %q, %v, want %q and an error with %q", name, got, err, path, words)
		}
	}
	write := func(path string, mode os.FileMode) string {
		t.Helper()
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want("", "", "neither runc nor crun is in PATH or in "+other+": install the package runc or crun")
	want("crun", "", `finding the OCI runtime "crun": it is not in PATH or in `+other+": install the package crun")
	want("kata", "", `the OCI runtime "kata": it is not in PATH or in `+other)
	want("/no/runc", "", "stat /no/runc: no such file")
	crun := write(filepath.Join(other, "crun"), 0o755)
	want("", crun, "")
	runc := write(filepath.Join(own, "runc"), 0o755)
	want("", runc, "")
	want(crun, crun, "")
}
