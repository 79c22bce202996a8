package cmd

import (
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/build"
	"github.com/runonce/runonce/runonce/report"
)

// The linker sets these (-X); a build without them is described by what Go knows of it.
var (
	version = ""
	commit  = ""
	date    = ""
)

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version", Before: p.before, Action: p.version,
		Flags: slices.Concat([]cli.Flag{outputFlag("table, json or yaml")}, engineFlags()),
	}
}

func (p *program) version(c *cli.Context) error {
	format, err := formatOf(c, "table", "json", "yaml")
	if err != nil {
		return err
	}
	v := build.Describe(version, commit, date)
	return p.write(format, v, func(report.Style) error { return v.Table(p.io.Stdout) })
}
