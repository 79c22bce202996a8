package cmd

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/cmdline"
)

// group is a group of flags with their values.
type group interface {
	// flags returns the flags, which set the values.
	flags() []cli.Flag
}

// checker is a group of which some values cannot be used: check refuses them.
type checker interface{ check() error }

// check refuses values of the groups that cannot be used.
func check(groups ...group) error {
	for _, g := range groups {
		if g, ok := g.(checker); ok {
			if err := g.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// command is one of the program that works. It embeds the groups of flags that it has.
type command interface {
	// run is called with the arguments when the options are set and checked.
	run(ctx context.Context, args []string) error
}

// noter is a command to which it matters what is on the command line itself: noteGiven is called before the
// flags get values from anywhere else.
type noter interface{ noteGiven() }

// command completes the description of a command, which has its own flags, with those of the groups.
func (p *program) command(description cli.Command, c command, groups ...group) *cli.Command {
	for _, g := range append(groups, &p.logging) {
		description.Flags = append(description.Flags, g.flags()...)
	}
	description.Action = func(ctx *cli.Context) error {
		args := ctx.Args().Slice()
		err := p.configure(ctx.Context, c, args)
		if err == nil {
			err = check(groups...)
		}
		if err != nil {
			return err
		}
		return c.run(ctx.Context, args)
	}
	p.commands[&description] = c
	return &description
}

// configure refuses arguments of a command that takes none, gives flags that are not on the command line
// their values from the environment and the configuration file, and turns on the log messages.
func (p *program) configure(ctx context.Context, c command, args []string) error {
	command := p.invocation.Command
	name := strings.TrimPrefix(command.HelpName, "runonce ")
	if command.ArgsUsage == "" && len(args) > 0 {
		return usagef("%s takes no arguments", name)
	}
	if n, ok := c.(noter); ok {
		n.noteGiven()
	}
	section, _, _ := strings.Cut(name, " ")
	var err error
	p.settings, err = cmdline.Load(p.sources(p.logging.config), section, p.tree.Subcommands)
	// Also after an error: it is written in the format of --output.
	if err = cmp.Or(err, p.settings.Apply(p.invocation)); err != nil {
		return badInput(err)
	}
	if err := p.openLog(ctx, &p.logging, p.quiet); err != nil {
		return err
	}
	for _, text := range p.settings.Warnings {
		p.log.Warn(text)
	}
	return checkNotNegative(command.Flags)
}

// notGiven is the value of a number that is not given and has no default.
const notGiven = math.MinInt

// checkNotNegative refuses negative values of numbers and durations.
func checkNotNegative(flags []cli.Flag) error {
	for _, f := range flags {
		switch f := f.(type) {
		case *cli.DurationFlag:
			if d := *f.Destination; d < 0 {
				return usagef("--%s %s: must not be negative", f.Name, d)
			}
		case *cli.IntFlag:
			if n := *f.Destination; n < 0 && n != notGiven {
				return usagef("--%s %d: must not be negative", f.Name, n)
			}
		}
	}
	return nil
}

func (p *program) sources(config string) cmdline.Sources {
	return cmdline.Sources{Machine: p.io.Machine, Config: config, Environ: p.environ()}
}

// boolFlag returns a flag whose help does not mention that it is off by default.
func boolFlag(to *bool, category, usage, name string, aliases ...string) *cli.BoolFlag {
	return &cli.BoolFlag{Name: name, Aliases: aliases, Category: category, Usage: usage, DisableDefaultText: true, Destination: to}
}

func textFlag(to *string, category, usage, name, value string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Category: category, Usage: usage, Destination: to, Value: value}
}

func numberFlag(to *int, category, usage, name string, value int) *cli.IntFlag {
	return &cli.IntFlag{Name: name, Category: category, Usage: usage, Destination: to, Value: value}
}

func durationFlag(to *time.Duration, category, usage, name string, value time.Duration) *cli.DurationFlag {
	return &cli.DurationFlag{Name: name, Category: category, Usage: usage, Destination: to, Value: value}
}

// quietFlag is for commands that show progress.
func (p *program) quietFlag() cli.Flag {
	return boolFlag(&p.quiet, "", "print no progress to standard error", "quiet", "q")
}

// list is the value of a flag that may be repeated.
type list struct {
	values []string
	paths  bool // may have commas, which separate other values
	alone  bool // "true" stands for a flag without a value
}

// IsBoolFlag says whether the flag may have no value.
func (l *list) IsBoolFlag() bool { return l.alone }

// Set adds a value.
func (l *list) Set(text string) error {
	if l.paths {
		l.values = append(l.values, text)
		return nil
	}
	for value := range strings.SplitSeq(text, ",") {
		l.values = append(l.values, strings.TrimSpace(value))
	}
	return nil
}

func (l *list) String() string { return strings.Join(l.values, ", ") }

// listFlag returns a flag that may be repeated.
func listFlag(to *list, category, usage, name, defaults string) cli.Flag {
	return &cli.GenericFlag{Name: name, Category: category, Value: to, Usage: usage + "; repeatable", DefaultText: defaults}
}

// pathsFlag returns a flag that may be repeated, whose values may have commas.
func pathsFlag(to *list, category, usage, name, defaults string) cli.Flag {
	to.paths = true
	return listFlag(to, category, usage, name, defaults)
}

// checkOneOf refuses the value of a flag that is none of these.
func checkOneOf[T ~string](flag string, value T, all ...T) error {
	if slices.Contains(all, value) {
		return nil
	}
	return usagef("--%s %q: must be %s", flag, value, alternatives(all))
}

// alternatives returns "A, B or C".
func alternatives[T ~string](all []T) string {
	text := string(all[0])
	for _, one := range all[1 : len(all)-1] {
		text += ", " + string(one)
	}
	return text + " or " + string(all[len(all)-1])
}

// hidden is a group whose flags are left out of the help.
type hidden struct{ group }

func (h hidden) flags() []cli.Flag {
	all := h.group.flags()
	for _, f := range all {
		switch f := f.(type) {
		case *cli.BoolFlag:
			f.Hidden = true
		case *cli.StringFlag:
			f.Hidden = true
		case *cli.GenericFlag:
			f.Hidden = true
		}
	}
	return all
}

func (h hidden) check() error { return check(h.group) }
