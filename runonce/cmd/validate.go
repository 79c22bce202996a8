package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

func (p *program) validateCommand() *cli.Command {
	return &cli.Command{
		Name: "validate", Usage: "check manifests and report every error; needs no root",
		ArgsUsage: "PATH...", Action: p.validate,
		Flags: slices.Concat([]cli.Flag{
			securityFlag(),
			outputFlag("table", "json", "yaml"),
			boolFlag(categoryInput, "treat warnings as errors", "strict"),
		}, inputFlags(), engineFlags()),
	}
}

func (p *program) validate(c *cli.Context) error {
	args, err := paths(c)
	if err != nil {
		return err
	}
	set, err := manifests.ReadPaths(c.Context, args, p.inputOptions(c))
	if cause := context.Cause(c.Context); cause != nil {
		return cause
	}
	v := manifests.NewValidation(set, err, c.Bool("strict"))
	err = p.write(c, v, func(report.Style) error { return p.printValidation(v, len(set.Pods)) })
	switch {
	case err != nil:
		return err
	case v.Err() != nil:
		return exitError{code: report.ExitUsage}
	case len(set.Pods) == 0:
		p.notice(noPod(c).Error())
	}
	return nil
}

// printValidation prints one line for each problem.
func (p *program) printValidation(v manifests.Validation, pods int) error {
	for _, problem := range v.Problems {
		text := problem.String()
		if problem.Severity == manifests.SeverityWarning {
			text = "warning: " + text
		}
		if _, err := fmt.Fprintln(p.io.Stdout, text); err != nil {
			return err
		}
	}
	if v.Err() == nil {
		_, err := fmt.Fprintf(p.io.Stdout, "%s, no error\n", runonce.Count(pods, "pod"))
		return err
	}
	return nil
}
