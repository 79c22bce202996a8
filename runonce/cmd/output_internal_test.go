package cmd

import (
	"strings"
	"testing"

	"github.com/runonce/runonce/runonce/cmd/cmdline"
)

func TestOutputFormat(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                          "",
		"run":                       "",
		"run -o json":               "json",
		"run --output yaml a":       "yaml",
		"run -output=json":          "json",
		"run -o=yaml --no-such":     "yaml",
		"run -o wide":               "",
		"run -o json -o table":      "",
		"run -o":                    "",
		"run --no-such -o json --x": "json",
		"run -- -o json":            "",
		"run output json":           "",
	} {
		p := &program{settings: &cmdline.Settings{}}
		p.invocation = cmdline.Parse(append([]string{"runonce"}, strings.Fields(args)...), p.rootCommand())
		if got := p.outputFormat(); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}
