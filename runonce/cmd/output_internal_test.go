package cmd

import (
	"strings"
	"testing"

	"github.com/runonce/runonce/runonce/cmd/cmdline"
)

// TestOutputFormat: the format is known also if the arguments are invalid.
func TestOutputFormat(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                          "",
		"run":                       "table",
		"run -o json":               "json",
		"run --output yaml a":       "yaml",
		"run -output=json":          "json",
		"run -o=yaml --no-such":     "yaml",
		"run -o wide":               "wide",
		"run -o json -o table":      "table",
		"run -o":                    "table",
		"run --no-such -o json --x": "json",
		"run -- -o json":            "table",
		"run output json":           "table",
	} {
		p := &program{}
		p.invocation = cmdline.Parse(append([]string{"runonce"}, strings.Fields(args)...), p.rootCommand())
		_, _ = p.invocation.SetFlags() // some are invalid
		got := ""
		if c, ok := p.commands[p.invocation.Command].(*runCommand); ok {
			got = c.output
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}
