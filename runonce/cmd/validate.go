package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
)

func (p *program) validateCommand() *cli.Command {
	return &cli.Command{
		Name: "validate", Usage: "check manifests and name every fault; needs no root",
		ArgsUsage: "PATH...", Action: p.withLogger(p.validate),
		Flags: slices.Concat([]cli.Flag{
			securityFlag(),
			outputFlag("table, json or yaml"),
			&cli.BoolFlag{Name: "strict", Category: categoryInput, Usage: "take warnings for errors"},
		}, inputFlags(), engineFlags()),
	}
}

func (p *program) validate(c *cli.Context) error {
	format, err := formatOf(c, "table", "json", "yaml")
	if err != nil {
		return err
	}
	if c.Args().Len() == 0 {
		return usagef("no PATH given: name a directory of pod manifests, a file, or - for standard input")
	}
	set, err := manifests.ReadPaths(c.Context, c.Args().Slice(), p.inputOptions(c))
	if cause := context.Cause(c.Context); cause != nil {
		return cause
	}
	v := manifests.NewValidation(set, err, c.Bool("strict"))
	err = p.write(format, v, func(report.Style) error { return p.problems(v, len(set.Pods)) })
	switch {
	case err != nil:
		return err
	case v.Err() != nil:
		return exitError{code: report.ExitUsage}
	case len(set.Pods) == 0:
		return usagef("no pod in %s", list(c.Args().Slice()))
	}
	return nil
}

// problems writes what was found, a line each, as a run would.
func (p *program) problems(v manifests.Validation, pods int) error {
	for _, f := range v.Problems {
		text := f.String()
		if f.Severity == manifests.SeverityWarning {
			text = "warning: " + text
		}
		if _, err := fmt.Fprintln(p.io.Stdout, text); err != nil {
			return err
		}
	}
	if v.Err() == nil {
		_, err := fmt.Fprintf(p.io.Stdout, "%d %s, no error\n", pods, plural(pods, "pod"))
		return err
	}
	return nil
}
