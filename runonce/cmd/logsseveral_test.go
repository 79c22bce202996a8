package cmd_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/runonce/runonce/runonce/cmd"
)

// TestPrefixColors: on a terminal that has colors, each log has a prefix in another one, which ends what a line has set.
func TestPrefixColors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		for _, name := range []string{"a", "b"} {
			invoke(t, m, "run", manifest(t, name, "Never", `[echo, "\e[1mbold"]`), "--node", nodeFile(), "--until", "completed")
		}
		const plain = "[pod/a/main] \x1b[1mbold\n[pod/b/main] \x1b[1mbold\n"
		for _, c := range []struct {
			process cmd.IO
			want    string
		}{
			{cmd.IO{}, plain},
			{cmd.IO{StderrTerminal: true}, plain},
			{cmd.IO{StdoutTerminal: true}, "\x1b[0;36m[pod/a/main]\x1b[0m \x1b[1mbold\n\x1b[0;33m[pod/b/main]\x1b[0m \x1b[1mbold\n"},
			{cmd.IO{StdoutTerminal: true, Getenv: func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }}, "[pod/a/main] bold\n[pod/b/main] bold\n"},
			{cmd.IO{StdoutTerminal: true, Getenv: func(name string) string { return map[string]string{"TERM": "dumb"}[name] }}, "[pod/a/main] bold\n[pod/b/main] bold\n"},
		} {
			c.process.Open = m.open
			got := invokeWith(t, c.process, "logs", "a", "b", "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log"))
			if got.stdout != c.want {
				t.Errorf("%q, want %q", got.stdout, c.want)
			}
		}
	})
}
