package cmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/cmdline"
)

const configurationHelp = "A flag --some-name that is not on the command line takes its value from the variable\n" +
	"RUNONCE_SOME_NAME, else from the key some-name of the configuration file, else its default."

// works says whether the command does something that the configuration and the log are for.
func works(c *cli.Command) bool {
	return slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return cmdline.FlagName(f) == cmdline.ConfigFlag })
}

// configure refuses arguments of a command that takes none, and gives flags that are not on the command
// line their values from the environment and the configuration file, before anything looks at them.
func (p *program) configure(c *cli.Context) error {
	name := strings.TrimPrefix(c.Command.HelpName, "runonce ")
	if c.Command.ArgsUsage == "" && c.Args().Present() {
		return usagef("%s takes no arguments", name)
	}
	command, _, _ := strings.Cut(name, " ")
	var err error
	if p.settings, err = cmdline.Load(p.sources(c.String(cmdline.ConfigFlag)), command, p.root.Subcommands); err != nil {
		return badInput(err)
	}
	if err = p.settings.Apply(c); err != nil {
		return badInput(err)
	}
	for _, f := range c.Command.Flags {
		if f, ok := f.(cli.ActionableFlag); ok {
			if err := f.RunAction(c); err != nil {
				return err
			}
		}
	}
	return p.setUp(c)
}

func (p *program) sources(config string) cmdline.Sources {
	return cmdline.Sources{Machine: p.io.Machine, Config: config, Environ: p.environ()}
}

// environ returns the environment variables, as KEY=VALUE.
func (p *program) environ() []string {
	if p.io.Environ == nil {
		return nil
	}
	return p.io.Environ()
}

// setDefaults gives flags the values that completions depend on. Nothing that goes wrong is worth a
// message.
func (p *program) setDefaults(arguments []string) {
	if s, err := cmdline.Load(p.sources(cmdline.Parse(arguments, p.root).Value(cmdline.ConfigFlag)), "", p.root.Subcommands); err == nil {
		s.SetDefaults()
	}
}

// located says where the value of the flag is from that an error is about.
func (p *program) located(err error) error {
	var e exitError
	if !errors.As(err, &e) || e.err == nil {
		return err
	}
	if from := p.settings.Explain(e.err); from != "" {
		return exitError{e.code, fmt.Errorf("%s%w", from, e.err)}
	}
	return err
}
