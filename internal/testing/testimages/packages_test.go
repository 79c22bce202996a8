package testimages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/ociimage"
)

func paths(files []ociimage.File) []string {
	all := make([]string, 0, len(files))
	for _, f := range files {
		all = append(all, f.Path)
	}
	return all
}

// TestPackages: unpacked packages come before what is installed, with and without /usr.
func TestPackages(t *testing.T) {
	t.Parallel()
	unpacked, installed := t.TempDir(), t.TempDir()
	for _, path := range []string{
		unpacked + "/bin/one", unpacked + "/usr/share/data/a", unpacked + "/usr/share/data/sub/b",
		installed + "/usr/bin/one", installed + "/usr/bin/two", installed + "/usr/share/data/old",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := Packages{roots: []string{unpacked, installed}}
	files, err := p.Files("/usr/bin/one", "/usr/bin/t*", "/usr/share/data")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/bin/one", "/usr/bin/two", "/usr/share/data/a", "/usr/share/data/sub/b"}, paths(files)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if _, err := p.Files("/usr/bin/three"); err == nil || !strings.Contains(err.Error(), "no Debian package has /usr/bin/three") {
		t.Errorf("a file that is not there: %v", err)
	}
	// A program that is none needs nothing.
	if libraries, err := p.Libraries(files); err != nil || len(libraries) > 0 {
		t.Errorf("libraries: %v, %v", paths(libraries), err)
	}
}

// TestLibraries: a program of this machine needs the loader and the libraries of its libraries.
func TestLibraries(t *testing.T) {
	t.Parallel()
	p := Packages{roots: []string{"/"}}
	if _, err := p.Files("/usr/lib/*-linux-gnu/libselinux.so.1"); err != nil {
		t.Skip("this is not Debian")
	}
	files, err := p.Files("/usr/bin/ls")
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := p.Libraries(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"/ld-linux-", "/libc.so.6", "/libpcre2-8.so.0"} { // the last is one of libselinux
		if !slices.ContainsFunc(paths(libraries), func(path string) bool { return strings.Contains(path, part) }) {
			t.Errorf("no %s in %v", part, paths(libraries))
		}
	}
}
