package cmd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
)

// write writes a document in the format that --output asks for.
func (p *program) write(c *cli.Context, document any, table func(report.Style) error) error {
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
	return p.io.StdoutTerminal && p.io.Getenv("NO_COLOR") == "" && p.io.Getenv("TERM") != "dumb"
}

func (p *program) writeDocument(format string, document any) error {
	p.reported = true
	write := report.JSON
	if format == "yaml" {
		write = report.YAML
	}
	if err := write(p.io.Stdout, document); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// writeFailure writes the document of a command that has failed before it had one, if it was to be
// JSON or YAML: whoever reads it gets one in every case.
func (p *program) writeFailure(code int, err error) error {
	format := outputFormat(p.args)
	if p.reported || format == "" {
		return nil
	}
	document := p.failureDocument(code, failure(err))
	if document == nil {
		return nil
	}
	return p.writeDocument(format, document)
}

// outputFormat returns json or yaml if the arguments ask for it, else "". They may be invalid.
func outputFormat(args []string) string {
	format := ""
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		if !strings.HasPrefix(arg, "-") || (name != "o" && name != "output") {
			continue
		}
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		format = value
	}
	if format != "json" && format != "yaml" {
		return ""
	}
	return format
}

// failureDocument returns the document of the command for a failure, nil if it has none.
func (p *program) failureDocument(code int, f report.Failure) any {
	command := strings.Join(p.args[min(1, len(p.args)):min(3, len(p.args))], " ")
	name, _, _ := strings.Cut(command, " ")
	switch {
	case name == "run":
		r := report.New(nil, code, time.Since(p.start))
		r.Failure = f
		return r
	case name == "plan":
		plan := report.NewPlan(admit.Plan{})
		plan.Failure = f
		return plan
	case name == "validate":
		return manifests.Validation{APIVersion: report.APIVersion, Kind: "Validation", Problems: manifests.Diagnostics{}, Error: f.Error}
	case name == "ps":
		pods := report.NewPods(nil)
		pods.Failure = f
		return pods
	case name == "version":
		v := ownVersions()
		v.Failure = f
		return v
	case command == "images list":
		return imageList{APIVersion: report.APIVersion, Kind: "Images", Images: []Image{}, Failure: f}
	}
	return nil
}

// failure returns the error as a part of a document.
func failure(err error) report.Failure {
	var problems manifests.Diagnostics
	if !errors.As(err, &problems) {
		return report.Failure{Error: err.Error()}
	}
	return report.Failure{Faults: faults(problems)}
}

func faults(problems manifests.Diagnostics) []report.Fault {
	list := make([]report.Fault, 0, len(problems))
	for _, d := range problems {
		list = append(list, report.Fault{
			File: d.File, Document: d.Document, Line: d.Line, Field: d.Field, Message: d.Message, Hint: d.Hint, Severity: string(d.Severity),
		})
	}
	return list
}
