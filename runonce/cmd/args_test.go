package cmd

import (
	"bytes"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/cmdline"
)

// TestParse: a command is found with its flags and arguments, wherever they are.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, command, flags, arguments string }{
		{"", "", "", ""},
		{"pods", "run", "", "pods"},
		{"./plan", "run", "", "./plan"},
		{"run pods", "run", "", "pods"},
		{"run pods -o json --rm more", "run", "output=json rm=true", "pods more"},
		{"pods --until=ready", "run", "until=ready", "pods"},
		{"pods -until=ready", "run", "until=ready", "pods"},
		{"--root /r run pods", "run", "root=/r", "pods"},
		{"--root /r pods", "run", "root=/r", "pods"},
		{"--rm pods", "run", "rm=true", "pods"},
		{"--rm=false pods", "run", "rm=false", "pods"},
		{"--root run plan pods", "plan", "root=run", "pods"},
		{"-", "run", "", "-"},
		{"run -- -odd", "run", "", "-odd"},
		{"run a -- --odd b", "run", "", "a --odd b"},
		{"--timeout 5m", "run", "timeout=5m0s", ""},
		{"logs web -f -c app --tail 3", "logs", "container=app follow=true tail=3", "web"},
		{"images --root /r import a.tar", "images import", "root=/r", "a.tar"},
		{"images", "images", "", ""},
		{"--root /r images list", "images list", "root=/r", ""},
		{"--help", "help", "", ""},
		{"-q --help", "help", "", ""},
		{"--version", "version", "", ""},
		{"-v", "version", "", ""},
		{"run --help", "run", "help=true", ""},
		{"help images pull", "help", "", "images pull"},
		{"run --node-label a=1 --node-label b=2,c=3 x", "run", "node-label=a=1, b=2, c=3", "x"},
	} {
		t.Run(c.in, func(t *testing.T) {
			t.Parallel()
			got := cmdline.Parse(append([]string{"runonce"}, strings.Fields(c.in)...), (&program{}).rootCommand())
			values, err := got.SetFlags()
			if err != nil {
				t.Fatal(err)
			}
			var flags []string
			values.Visit(func(f *flag.Flag) { flags = append(flags, f.Name+"="+f.Value.String()) })
			want := []string{c.command, c.flags, c.arguments}
			if diff := cmp.Diff(want, []string{got.Name(), strings.Join(flags, " "), strings.Join(values.Args(), " ")}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzParse: each argument is a part of the command, a flag, a value or an argument of the command, in order.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"run a -o json", "--root", "images list -- x", "-- -", "- -o", "=", "--=", "-"} {
		f.Add(s)
	}
	root := (&program{}).rootCommand()
	f.Fuzz(func(t *testing.T, line string) {
		in := strings.Fields(line)
		got := cmdline.Parse(append([]string{"runonce"}, in...), root)
		values, err := got.SetFlags()
		if err != nil {
			return
		}
		for _, a := range values.Args() {
			i := slices.Index(in, a)
			if i < 0 {
				t.Fatalf("%q: made up %q", line, a)
			}
			in = in[i+1:]
		}
	})
}

// TestEveryCommandHasHelp: help names every flag and says what it is for.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	all := []*cli.Command{{Usage: "no command", Flags: []cli.Flag{(&program{}).helpFlag()}}}
	for _, c := range (&program{}).rootCommand().Subcommands {
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
		for _, sub := range c.Subcommands {
			if _, name, _ := strings.Cut(sub.Name, " "); !strings.Contains(out.String(), "   "+name+" ") {
				t.Errorf("%s: help lacks %s", c.Name, name)
			}
		}
		var same bytes.Buffer
		Main(t.Context(), slices.Concat([]string{"runonce", "help"}, strings.Fields(c.Name)), IO{Stdout: &same, Stderr: &errs})
		if diff := cmp.Diff(out.String(), same.String()); diff != "" {
			t.Errorf("%s: --help and help differ: %s", c.Name, diff)
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
