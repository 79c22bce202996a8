package cmd

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

// validateCommand is "validate".
type validateCommand struct {
	*program
	manifestFlags
	engineFlags
	outputFlags
	strict bool
}

func (p *program) validateCommand() *cli.Command {
	c := &validateCommand{program: p, outputFlags: newOutputFlags("table", "json", "yaml")}
	return p.command(cli.Command{
		Name: "validate", Usage: "check manifests and report every error; needs no root", ArgsUsage: "PATH...",
		Flags: []cli.Flag{boolFlag(&c.strict, categoryInput, "treat warnings as errors", "strict")},
	}, c, &c.manifestFlags, &c.engineFlags, &c.outputFlags)
}

func (c *validateCommand) run(ctx context.Context, args []string) error {
	if err := needPaths(args); err != nil {
		return err
	}
	o, err := c.input(c.console)
	if err != nil {
		return err
	}
	set, err := manifests.ReadPaths(ctx, args, o)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	v := manifests.NewValidation(set, err, c.strict)
	err = c.write(c.output, v, func(report.Style) error { return c.printValidation(v, len(set.Pods)) })
	switch {
	case err != nil:
		return err
	case v.Err() != nil:
		return exitError{code: report.ExitUsage}
	case len(set.Pods) == 0:
		c.notice(noPod(args).Error())
	}
	return nil
}

func (c *validateCommand) fail(r report.Report) error {
	problems := append(manifests.Diagnostics{}, r.Faults...) // never null
	return c.writeDocument(c.output, manifests.Validation{APIVersion: report.APIVersion, Kind: "Validation", Problems: problems, Error: r.Error})
}

// printValidation prints one line for each problem.
func (c *validateCommand) printValidation(v manifests.Validation, pods int) error {
	for _, problem := range v.Problems {
		text := problem.String()
		if problem.Severity == manifests.SeverityWarning {
			text = "warning: " + text
		}
		if _, err := fmt.Fprintln(c.io.Stdout, text); err != nil {
			return err
		}
	}
	for _, d := range v.Order {
		if _, err := fmt.Fprintln(c.io.Stdout, d); err != nil {
			return err
		}
	}
	if v.Err() == nil {
		_, err := fmt.Fprintf(c.io.Stdout, "%s, no error\n", runonce.Count(pods, "pod"))
		return err
	}
	return nil
}
