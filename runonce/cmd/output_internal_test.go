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
		if got := (&program{args: strings.Fields(args), settings: &cmdline.Settings{}}).outputFormat(); got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
}
