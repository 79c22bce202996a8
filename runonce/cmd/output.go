package cmd

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
)

// formatGitHub is the output format of run for GitHub Actions.
const formatGitHub = "github"

// write writes a document in a format of --output.
func (c *console) write(format string, document any, table func(report.Style) error) error {
	c.reported = true
	if format == "json" || format == "yaml" {
		return c.writeDocument(format, document)
	}
	if err := table(report.Style{Wide: format == "wide", Color: c.colors()}); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// writeDocument writes a document in a format for programs. In another format it writes nothing.
func (c *console) writeDocument(format string, document any) (err error) {
	switch format {
	case "yaml":
		err = report.YAML(c.data.Stdout, document, c.inJob)
	case "json":
		err = report.JSON(c.data.Stdout, document)
	}
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// failer is a command that writes a document. When it has failed before that, fail writes one about the
// error: whoever reads JSON, YAML or JUnit gets a document in every case.
type failer interface {
	fail(r report.Report) error
}

// writeFailure writes the document of a command that has failed before it had results.
func (p *program) writeFailure(code int, cause error) error {
	f, ok := p.commands[p.invocation.Command].(failer)
	if p.reported || !ok {
		return nil
	}
	r := report.New(nil, code, time.Since(p.start))
	r.Failure = failureOf(cause)
	p.keepReport(r, p.faults, true)
	return f.fail(r)
}

// writeReport writes a report in a format of --output. faults are those of the manifests.
func (c *console) writeReport(format string, r report.Report, faults manifests.Diagnostics) error {
	return c.write(format, r, func(s report.Style) error {
		if format == formatGitHub {
			return c.writeGitHub(r, faults)
		}
		return r.Table(c.io.Stdout, s)
	})
}

// writeFailedReport writes the report of a command that has failed, in a format for programs.
func (c *console) writeFailedReport(format string, r report.Report, faults manifests.Diagnostics) error {
	if format == formatGitHub {
		return c.writeGitHub(r, faults)
	}
	return c.writeDocument(format, r)
}

// maxSummary bounds the summary of a step, in bytes: GitHub shows none that is larger.
const maxSummary = 1 << 20

// writeGitHub writes the report for GitHub Actions, and adds it to the summary of the step.
func (c *console) writeGitHub(r report.Report, faults manifests.Diagnostics) error {
	if err := addSummary(c.io.Getenv("GITHUB_STEP_SUMMARY"), r, faults); err != nil {
		c.log.Warn("could not write the summary of the step", "error", err)
	}
	return report.GitHub{Workspace: c.io.Getenv("GITHUB_WORKSPACE"), Faults: faults}.Write(c.data.Stdout, r)
}

// addSummary adds the report to a file, which other programs add to as well.
func addSummary(path string, r report.Report, faults manifests.Diagnostics) (err error) {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return r.Summary(f, faults, maxSummary-int(info.Size()))
}

// failureOf returns the error as a part of a document.
func failureOf(err error) report.Failure {
	var problems manifests.Diagnostics
	if !errors.As(err, &problems) {
		return report.Failure{Error: err.Error()}
	}
	return report.Failure{Faults: problems}
}

// fileFlags say where a report is written besides standard output.
type fileFlags struct{ junitFile, timelines, portsTo string }

func (f *fileFlags) flags() []cli.Flag {
	return []cli.Flag{
		textFlag(&f.junitFile, categoryReport, "write a JUnit report to `FILE`", "junit", ""),
		textFlag(&f.timelines, categoryReport, "write an SVG timeline to `FILE`", "timeline", ""),
		textFlag(&f.portsTo, categoryReport, "write host ports of pods to `FILE`, as variables", "ports-to", ""),
	}
}

// writable refuses files that cannot be written.
func (f *fileFlags) writable() error {
	for _, file := range []struct{ flag, path string }{{"junit", f.junitFile}, {"timeline", f.timelines}, {"ports-to", f.portsTo}} {
		if err := report.Writable(file.path); err != nil {
			return usagef("--%s: %w", file.flag, err)
		}
	}
	return nil
}
