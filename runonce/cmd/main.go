// Package cmd is the command line: it reads flags, connects the packages and maps the result of
// a command to its exit code. Results go to standard output, progress and log messages to
// standard error.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
	"github.com/runonce/runonce/runonce/lastrun"
	"github.com/runonce/runonce/runonce/report"
)

// Interrupt is the cause of a context that was canceled by a signal.
type Interrupt struct{ Signal syscall.Signal }

func (i Interrupt) Error() string { return "interrupted: " + i.Signal.String() }

// Main runs a command and returns its exit code. The first argument is the program's name.
func Main(ctx context.Context, arguments []string, process IO) int {
	p := &program{console: newConsole(process), start: time.Now(), settings: &cmdline.Settings{}, hangups: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if process.Signals != nil {
		done := make(chan struct{})
		defer close(done)
		go p.watch(cancel, done)
	}
	p.tree = p.rootCommand()
	if cmdline.IsCompletion(arguments) {
		p.setDefaults(arguments)
		cmdline.Complete(process.Stdout, arguments, p.tree)
		return report.ExitOK
	}
	err := p.runCommandLine(ctx, arguments)
	p.display.Close()
	code := p.exitCode(ctx, p.located(err))
	p.endRun(code)
	return code
}

// runCommandLine runs the command that the arguments name.
func (p *program) runCommandLine(ctx context.Context, arguments []string) error {
	if len(arguments) > 1 && arguments[1] == "convert" {
		return p.convert(ctx, arguments[2:])
	}
	p.invocation = cmdline.Parse(arguments, p.tree)
	values, err := p.invocation.SetFlags() // first, since errors are written in the format of --output
	if err := p.invocation.CheckCommand(p.tree); err != nil {
		return badInput(err)
	}
	switch {
	case err != nil:
		return badInput(err)
	case p.helpWanted:
		return p.help(strings.Fields(p.invocation.Name())...)
	}
	c := cli.NewContext(nil, values, nil)
	c.Context, c.Command = ctx, p.invocation.Command
	return c.Command.Action(c)
}

// program is one invocation.
type program struct {
	*console
	tree       *cli.Command             // the program itself
	commands   map[*cli.Command]command // those that work
	invocation cmdline.Invocation
	helpWanted bool
	logging    logFlags
	quiet      bool // progress is not printed
	start      time.Time
	settings   *cmdline.Settings // of flags that are not on the command line
	reloads    atomic.Bool       // SIGHUP is not an interrupt, but comes to hangups
	hangups    chan struct{}
	faults     manifests.Diagnostics // warnings of the manifests, and errors of those that are skipped
	last       *lastrun.Recording    // of this run, nil for none
}

const configurationHelp = "A flag --some-name that is not on the command line takes its value from the variable\n" +
	"RUNONCE_SOME_NAME, else from the key some-name of the configuration file, else its default."

// rootCommand describes the command line. Invocations share nothing of it.
func (p *program) rootCommand() *cli.Command {
	p.commands = map[*cli.Command]command{}
	root := &cli.Command{
		HelpName:    "runonce",
		Usage:       "run a directory of Kubernetes pod manifests on this machine, once",
		UsageText:   "runonce [run] [flags] PATH...\nrunonce COMMAND [flags] [arguments]",
		Description: configurationHelp,
		Flags:       []cli.Flag{p.helpFlag()},
		Action: func(*cli.Context) error {
			return usagef("no PATH given: name a directory of pod manifests, or see %q", "runonce help")
		},
		Subcommands: []*cli.Command{
			p.runCommand(), p.watchCommand(), p.planCommand(), p.validateCommand(), p.psCommand(), p.logsCommand(), p.eventsCommand(),
			p.describeCommand(), p.topCommand(), p.execCommand(), p.attachCommand(), p.debugCommand(), p.cpCommand(),
			p.portForwardCommand(), p.waitCommand(), p.reportCommand(), p.serveCommand(), p.kubeconfigCommand(),
			p.downCommand(), p.imagesCommand(), p.doctorCommand(), p.convertCommand(), p.versionCommand(), p.completionCommand(), p.helpCommand(),
		},
	}
	p.addDefaults(root)
	return root
}

// addDefaults adds what all commands below another one have.
func (p *program) addDefaults(parent *cli.Command) {
	for _, c := range parent.Subcommands {
		c.HelpName = parent.HelpName + " " + c.Name
		c.Flags = append(c.Flags, p.helpFlag())
		p.addDefaults(c)
	}
}

func (p *program) helpFlag() cli.Flag {
	return boolFlag(&p.helpWanted, "", "show this help", "help", "h")
}

func (p *program) helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "show help for a command", ArgsUsage: "[COMMAND]",
		Action: func(c *cli.Context) error { return p.help(c.Args().Slice()...) },
	}
}

// help prints the help of a command.
func (p *program) help(names ...string) error {
	command, err := cmdline.Find(p.tree, names)
	if err != nil {
		return badInput(err)
	}
	return cmdline.Help(p.io.Stdout, command)
}

// setDefaults gives flags the values that completions depend on. Nothing that goes wrong is worth a
// message.
func (p *program) setDefaults(arguments []string) {
	if s, err := cmdline.Load(p.sources(cmdline.Parse(arguments, p.tree).Value(cmdline.ConfigFlag)), "", p.tree.Subcommands); err == nil {
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

// exitCode prints the error and returns the exit code. A command that has not written its document
// yet writes one about the error.
func (p *program) exitCode(ctx context.Context, err error) int {
	if err == nil {
		return report.ExitOK
	}
	code, err := p.exitOf(ctx, err)
	if err != nil {
		p.printError(err)
		if err := p.writeFailure(code, err); err != nil {
			p.printError(err)
		}
	}
	return code
}

// exitOf returns the exit code for an error, and the error to print, if any. The exit code of a command in a container
// is passed on, and then all other failures have the same one.
func (p *program) exitOf(ctx context.Context, err error) (int, error) {
	var inside commandExit
	if errors.As(err, &inside) && context.Cause(ctx) == nil {
		return int(inside.code), inside.err
	}
	code, err := exitOf(ctx, err)
	switch p.commands[p.invocation.Command].(type) {
	case *execCommand, *attachCommand, *debugCommand:
		if context.Cause(ctx) == nil {
			code = exitOwnFailure
		}
	}
	return code, err
}

// exitOf returns the exit code for an error, and the error to print, if any.
func exitOf(ctx context.Context, err error) (int, error) {
	var f exitError
	known := errors.As(err, &f)
	var interrupt Interrupt
	switch {
	case errors.As(context.Cause(ctx), &interrupt) && !(known && f.err == nil):
		return report.ExitSignal(interrupt.Signal), interrupt
	case known:
		return f.code, f.err
	}
	return report.ExitFailed, err
}

// Signals returns the signals that end a command. SIGHUP stays ignored if the process was started
// so, as nohup does, for its children too.
func Signals() []os.Signal {
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
