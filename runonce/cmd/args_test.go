package cmd

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/cmdline"
)

func TestReorder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"runonce", "runonce"},
		{"runonce pods", "runonce run pods"},
		{"runonce ./plan", "runonce run ./plan"},
		{"runonce run pods", "runonce run pods"},
		{"runonce run pods -o json --rm more", "runonce run -o json --rm pods more"},
		{"runonce pods --until=ready", "runonce run --until=ready pods"},
		{"runonce --root /r run pods", "runonce run --root /r pods"},
		{"runonce --root /r pods", "runonce run --root /r pods"},
		{"runonce --rm pods", "runonce run --rm pods"},
		{"runonce --root run plan pods", "runonce plan --root run pods"},
		{"runonce -", "runonce run -"},
		{"runonce run -- -odd", "runonce run -- -odd"},
		{"runonce run a -- --odd b", "runonce run -- a --odd b"},
		{"runonce --timeout 5m", "runonce run --timeout 5m"},
		{"runonce logs web -f -c app --tail 3", "runonce logs -f -c app --tail 3 web"},
		{"runonce images --root /r import a.tar", "runonce images import --root /r a.tar"},
		{"runonce images", "runonce images"},
		{"runonce --root /r images list", "runonce images list --root /r"},
		{"runonce --help", "runonce --help"},
		{"runonce --version", "runonce version"},
		{"runonce run --help", "runonce run --help"},
		{"runonce help run", "runonce help run"},
		{"runonce run --no-such pods", "runonce run --no-such pods"},
		{"runonce run pods --timeout", "runonce run --timeout pods"},
	} {
		t.Run(c.in, func(t *testing.T) {
			t.Parallel()
			p := &program{}
			got := cmdline.Reorder(strings.Fields(c.in), p.app().Commands)
			if diff := cmp.Diff(strings.Fields(c.want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzReorder: no argument is lost or made up, but for the command.
func FuzzReorder(f *testing.F) {
	for _, s := range []string{"run a -o json", "--root", "images list -- x", "-- -", "- -o", "=", "--=", "-"} {
		f.Add(s)
	}
	p := &program{}
	commands := p.app().Commands
	f.Fuzz(func(t *testing.T, line string) {
		in := append([]string{"runonce"}, strings.Fields(line)...)
		out := cmdline.Reorder(in, commands)
		count := func(list []string) map[string]int {
			n := map[string]int{}
			for _, a := range list {
				n[a]++
			}
			return n
		}
		had, has := count(in), count(out)
		if len(out) == len(in)+1 {
			has["run"]--
		} else if len(out) != len(in) {
			t.Fatalf("%q became %q", in, out)
		}
		for a, n := range had {
			if has[a] != n {
				t.Fatalf("%q became %q", in, out)
			}
		}
	})
}

// TestEveryCommandHasHelp: help names every flag and says what it is for.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	all := []*cli.Command{{Usage: "no command", Flags: []cli.Flag{helpFlag()}}}
	for _, c := range (&program{}).app().Commands {
		if c.Name == "help" {
			continue
		}
		all = append(all, c)
		for _, sub := range c.Subcommands {
			sub.Name = c.Name + " " + sub.Name
			all = append(all, sub)
		}
	}
	for _, c := range all {
		var out, errs bytes.Buffer
		code := Main(t.Context(), slices.Concat([]string{"runonce"}, strings.Fields(c.Name), []string{"--help"}), IO{Stdout: &out, Stderr: &errs})
		if code != 0 || errs.Len() > 0 {
			t.Errorf("%s: exit code %d: %s", c.Name, code, &errs)
		}
		if c.Usage == "" {
			t.Errorf("%s: no usage", c.Name)
		}
		for line := range strings.Lines(out.String()) {
			if len(strings.TrimRight(line, "\n")) > 100 || strings.Contains(line, "(default: false)") || strings.Contains(line, "(default: 0)") {
				t.Errorf("%s: %s", c.Name, line)
			}
		}
		for _, f := range c.Flags {
			if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
				continue
			}
			if !strings.Contains(out.String(), "--"+f.Names()[0]) {
				t.Errorf("%s: help lacks --%s", c.Name, f.Names()[0])
			}
		}
	}
}
