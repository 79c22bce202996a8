package cmd

import (
	"bytes"
	"io"
	"testing"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runtime/logs"
)

// TestWatchReportsFaults: the report of a plan has the faults of its manifests, although others have
// been read meanwhile.
func TestWatchReportsFaults(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := &watchCommand{target: &nodeTarget{}, rollbacks: newRollbacks(0), outputFlags: outputFlags{output: formatGitHub}, program: &program{
		console: &console{io: IO{Getenv: func(string) string { return "" }}, data: logs.Sinks{Stdout: &out}, display: progress.New(io.Discard, nil)},
		faults:  manifests.Diagnostics{{Severity: "warning", Field: "spec", Message: "of the first manifests"}},
	}}
	concluded := c.concluded(nil)
	c.faults = nil
	if concluded(nil); out.String() != "::warning title=spec::of the first manifests\n" {
		t.Errorf("%s", &out)
	}
}
