package cmd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/report"
)

// converter is the program that "convert" runs. It is one of its own, because few machines that run pods need its libraries.
const converter = "runonce-compose"

func (p *program) convertCommand() *cli.Command {
	return &cli.Command{
		Name: "convert", Usage: "convert files of docker compose to manifests", ArgsUsage: "[FILE...]",
		Description: "It runs the program " + converter + ", from beside this one or from PATH, and passes on its\n" +
			"arguments and its exit code. \"" + converter + " help\" shows the flags.",
		Action: func(c *cli.Context) error { return p.convert(c.Context, c.Args().Slice()) },
	}
}

// convert runs the converter, which knows its flags itself, and whose exit code is that of this program. The help is ours: it is there
// without the converter.
func (p *program) convert(ctx context.Context, args []string) error {
	if slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "-help" || a == "--help" }) {
		return p.help("convert")
	}
	path, err := exec.LookPath(filepath.Join(filepath.Dir(p.io.Program), converter))
	if p.io.Program == "" || err != nil {
		path, err = exec.LookPath(converter)
	}
	if err != nil {
		return exitError{report.ExitEngine, fmt.Errorf(
			"%s is neither beside runonce nor in PATH: install it from the archive of the release, or with "+
				"\"go install github.com/runonce/runonce/manifests/compose/cmd/%[1]s@latest\"", converter)}
	}
	c := exec.CommandContext(ctx, path, append([]string{"convert"}, args...)...)
	c.Stdin, c.Stdout, c.Stderr = p.io.Stdin, p.io.Stdout, p.io.Stderr
	if p.io.Environ != nil {
		c.Env = p.io.Environ()
	}
	err = c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exitWith(exit.ExitCode(), nil)
	}
	if err != nil {
		return fmt.Errorf("running %s: %w", path, err)
	}
	return nil
}
