package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/runonce/cmd"
)

// TestImages lists and imports.
func TestImages(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
	}{
		{[]string{"images", "import", m.root}, 0, "localhost/box:1 imported\n"},
		{[]string{"images", "import", "/none"}, 2, ""},
		{[]string{"images", "import"}, 2, ""},
		{[]string{"images"}, 2, ""},
	} {
		got := invokeWith(t, cmd.IO{Open: m.open}, c.args...)
		if got.code != c.code || got.stdout != c.stdout {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
}

// TestImagesListOfNone: the document of an empty store has an empty list.
func TestImagesListOfNone(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	clear(m.engine.Store)
	got := invoke(t, m, "images", "list", "-o", "json")
	checkDocument(t, []string{"images", "list"}, got.stdout)
	if got.code != 0 || !strings.Contains(got.stdout, `"images": []`) {
		t.Errorf("%+v", got)
	}
}

// TestImagesDirs: --images-dir may be repeated, and each directory counts.
func TestImagesDirs(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	pod, odd := manifest(t, "web", "Always", "[sleep]"), filepath.Join(t.TempDir(), "a,b")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(dirs ...string) invocation {
		args := []string{"run", pod, "--node", nodeFile(), "--settle", "0"}
		for _, dir := range dirs {
			args = append(args, "--images-dir", dir)
		}
		return invoke(t, m, args...)
	}
	if got := run(m.root, odd); got.code != 0 {
		t.Errorf("%+v", got)
	}
	for _, dirs := range [][]string{{"/none", m.root}, {m.root, "/none"}} {
		if got := run(dirs...); got.code != 2 || !strings.Contains(got.stderr, "--images-dir: looking for images: stat /none") {
			t.Errorf("%v: %+v", dirs, got)
		}
	}
}
