package cmd

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/build"
	"github.com/runonce/runonce/runonce/exitcode"
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
		Name: "version", Usage: "print the version, and those of the daemon and the OCI runtime", Before: p.before, Action: p.version,
		Flags: slices.Concat([]cli.Flag{outputFlag("table, json or yaml")}, engineFlags()),
	}
}

func (p *program) version(c *cli.Context) error {
	format, err := formatOf(c, "table", "json", "yaml")
	if err != nil {
		return err
	}
	v := build.Describe(version, commit, date)
	if err := p.outside(c, &v); err != nil {
		return err
	}
	return p.write(format, v, func(report.Style) error { return v.Table(p.io.Stdout) })
}

// outside adds the versions of programs outside this one.
func (p *program) outside(c *cli.Context, v *build.Versions) error {
	if p.io.Versions == nil {
		return nil
	}
	place, err := p.place(c)
	if err != nil {
		return err
	}
	found, err := p.io.Versions(c.Context, place)
	if err != nil {
		return exitcode.Unusable(fmt.Errorf("container engine: %w", err))
	}
	if place.Address != "" {
		v.Daemon = &build.Program{Path: place.Address, Version: found.Daemon}
	}
	if found.RuntimePath != "" {
		v.Runtime = &build.Program{Path: found.RuntimePath, Version: found.Runtime}
	}
	return nil
}
