package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/report"
)

// formatGitHub is the output format of run for GitHub Actions.
const formatGitHub = "github"

// write writes a document in the format that --output asks for.
func (p *program) write(c *cli.Context, document any, table func(report.Style) error) error {
	p.reported = true
	format := c.String("output")
	if format == "json" || format == "yaml" {
		return p.writeDocument(format, document)
	}
	if err := table(report.Style{Wide: format == "wide", Color: p.colors()}); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// colors tells whether the output is colored: only on a terminal that can do it, and not against
// the user's wish (no-color.org).
func (p *program) colors() bool {
	return p.io.StdoutTerminal && p.io.Getenv("NO_COLOR") == "" && !p.dumbTerminal()
}

// dumbTerminal says whether the terminal has neither colors nor a cursor that moves.
func (p *program) dumbTerminal() bool { return p.io.Getenv("TERM") == "dumb" }

func (p *program) writeDocument(format string, document any) error {
	write := report.JSON
	if format == "yaml" {
		write = report.YAML
	}
	if err := write(p.io.Stdout, document); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// writeFailure writes the reports of a command that has failed before it had results. Whoever reads
// JSON, YAML or JUnit gets a document in every case.
func (p *program) writeFailure(code int, cause error) error {
	if p.reported {
		return nil
	}
	r := report.New(nil, code, time.Since(p.start))
	r.Failure = failureOf(cause)
	err := report.WriteFile(p.junit, r.JUnit)
	switch format := p.outputFormat(); format {
	case "":
	case formatGitHub:
		err = errors.Join(err, p.writeGitHub(r, p.faults))
	default:
		if document := p.failureDocument(r, cause); document != nil {
			err = errors.Join(err, p.writeDocument(format, document))
		}
	}
	return err
}

// writeReport writes a report in the format that --output asks for. faults are those of the manifests.
func (p *program) writeReport(c *cli.Context, r report.Report, faults manifests.Diagnostics) error {
	return p.write(c, r, func(s report.Style) error {
		if c.String("output") == formatGitHub {
			return p.writeGitHub(r, faults)
		}
		return r.Table(p.io.Stdout, s)
	})
}

// writeGitHub writes the report for GitHub Actions.
func (p *program) writeGitHub(r report.Report, faults manifests.Diagnostics) error {
	return report.GitHub{Workspace: p.io.Getenv("GITHUB_WORKSPACE"), Faults: faults}.Write(p.io.Stdout, r)
}

// outputFormat returns the format for programs that is wanted, "" for none. The arguments may be invalid.
func (p *program) outputFormat() string {
	format := cmp.Or(p.invocation.Value("output", "o"), p.settings.Value("output"))
	if slices.Contains([]string{"json", "yaml", formatGitHub}, format) {
		return format
	}
	return ""
}

// failureDocument returns the document of the command for the failure of r, which cause is, nil if it has none.
func (p *program) failureDocument(r report.Report, cause error) any {
	switch p.invocation.Name() {
	case "run", "watch":
		return r
	case "plan":
		plan := report.NewPlan(admit.Plan{})
		plan.Failure = r.Failure
		return plan
	case "validate":
		v := manifests.Validation{APIVersion: report.APIVersion, Kind: "Validation", Problems: manifests.Diagnostics{}, Error: r.Error}
		errors.As(cause, &v.Problems)
		return v
	case "ps":
		pods := report.NewPods(nil)
		pods.Failure = r.Failure
		return pods
	case "version":
		v := ownVersions()
		v.Failure = r.Failure
		return v
	case "images pull":
		return imagePulls{APIVersion: report.APIVersion, Kind: "ImagePull", ExitCode: r.ExitCode, Images: []pulledImage{}, Failure: r.Failure}
	case "images list":
		return imageList{APIVersion: report.APIVersion, Kind: "Images", Images: []backend.Image{}, Failure: r.Failure}
	}
	return nil
}

// failureOf returns the error as a part of a document.
func failureOf(err error) report.Failure {
	var problems manifests.Diagnostics
	if !errors.As(err, &problems) {
		return report.Failure{Error: err.Error()}
	}
	return report.Failure{Faults: problems}
}
