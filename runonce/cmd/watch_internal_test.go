package cmd

import (
	"bytes"
	"flag"
	"io"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/cmd/progress"
)

// TestWatchReportsFaults: the report of a plan has the faults of its manifests, although others have
// been read meanwhile.
func TestWatchReportsFaults(t *testing.T) {
	t.Parallel()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.String("output", formatGitHub, "")
	var out bytes.Buffer
	k := &keeper{c: cli.NewContext(nil, flags, nil), program: &program{
		io: IO{Stdout: &out, Getenv: func(string) string { return "" }}, display: progress.New(io.Discard, nil),
		faults: manifests.Diagnostics{{Severity: "warning", Field: "spec", Message: "of the first manifests"}},
	}}
	concluded := k.concluded(nil)
	k.faults = nil
	if concluded(nil); out.String() != "::warning title=spec::of the first manifests\n" {
		t.Errorf("%s", &out)
	}
}
