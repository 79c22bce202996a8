package cmd_test

import (
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
		{[]string{"images", "list"}, 0, "IMAGE            DIGEST      SIZE\nlocalhost/box:1  sha256:box  2.9 MB\n"},
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
