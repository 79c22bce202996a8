// Package cmd is the command line: it reads flags, puts the packages together and maps the
// result of a command to its exit code. Standard output carries results and nothing else;
// progress and logs go to standard error.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/containerd"
)

// IO is the world as a command sees it.
type IO struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// StdoutTerminal and StderrTerminal say whether somebody looks at them: then there
	// are colors and progress.
	StdoutTerminal bool
	StderrTerminal bool
	// Getenv looks up an environment variable.
	Getenv func(string) string
	// Machine is the root of the machine's files, where the node is detected.
	Machine fs.FS
	// Open opens the container engine. Its errors mean that the engine cannot be used.
	Open func(ctx context.Context, o EngineOptions) (Engine, error)
	// Versions asks a daemon and the OCI runtime for theirs, without opening the engine; nil
	// asks nobody. Its errors mean that the engine cannot be used.
	Versions func(ctx context.Context, o containerd.Options) (containerd.Versions, error)
}

// Interrupt is the cause of a context that a signal has ended.
type Interrupt struct{ Signal syscall.Signal }

func (i Interrupt) Error() string { return "interrupted: " + i.Signal.String() }

// Main runs the command that arguments, which begin with the program's name, ask for and
// returns the exit code of the program.
func Main(ctx context.Context, arguments []string, world IO) int {
	p := &program{io: world}
	app := p.app()
	err := app.RunContext(ctx, arrange(arguments, app.Commands))
	return p.conclude(ctx, err)
}

// program is one invocation.
type program struct {
	io  IO
	log *slog.Logger
	// json says that messages go out as JSON, too.
	json bool
}

// app describes the command line. Nothing in it is shared between invocations.
func (p *program) app() *cli.App {
	app := &cli.App{
		Name:                 "runonce",
		HelpName:             "runonce",
		Usage:                "run a directory of Kubernetes pod manifests on this machine, once",
		UsageText:            "runonce [run] [flags] PATH...\nrunonce COMMAND [flags] [arguments]",
		Version:              version,
		Writer:               p.io.Stdout,
		ErrWriter:            p.io.Stderr,
		Reader:               p.io.Stdin,
		EnableBashCompletion: true,
		HideVersion:          true,
		HideHelp:             true, // the library's own help is shared by all invocations
		Flags:                []cli.Flag{helpFlag()},
		Commands:             p.commands(),
		ExitErrHandler:       func(*cli.Context, error) {}, // conclude does it
		OnUsageError:         onUsageError,
		Action: func(*cli.Context) error {
			return usagef("no PATH given: name a directory of pod manifests, or see %q", "runonce help")
		},
	}
	prepare(app.Commands)
	return app
}

// prepare gives every command what all have.
func prepare(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = onUsageError
		c.HideHelp = true
		c.Flags = append(c.Flags, helpFlag())
		prepare(c.Subcommands)
	}
}

func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "show this help"}
}

func (p *program) helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "show the help of a command", ArgsUsage: "[COMMAND]",
		Action: func(c *cli.Context) error {
			name := c.Args().First()
			if name == "" {
				return cli.ShowAppHelp(c)
			}
			if c.App.Command(name) == nil {
				return usagef("no command %q; see %q", name, "runonce help")
			}
			return cli.ShowCommandHelp(c, name)
		},
	}
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	name := strings.TrimSpace("runonce " + strings.TrimPrefix(c.Command.HelpName, "runonce "))
	return usagef("%w; see %q", err, name+" --help")
}

func (p *program) commands() []*cli.Command {
	return []*cli.Command{
		p.runCommand(), p.planCommand(), p.validateCommand(), p.psCommand(), p.logsCommand(),
		p.downCommand(), p.imagesCommand(), p.versionCommand(), p.completionCommand(), p.helpCommand(),
	}
}

// conclude says what went wrong, in one line where it can, and returns the exit code.
func (p *program) conclude(ctx context.Context, err error) int {
	if err == nil {
		return report.ExitOK
	}
	var f exitError
	known := errors.As(err, &f)
	var interrupt Interrupt
	if errors.As(context.Cause(ctx), &interrupt) && !(known && f.err == nil) {
		p.say(interrupt)
		return report.ExitSignal(interrupt.Signal)
	}
	switch {
	case !known:
		p.say(err)
		return report.ExitFailed
	case f.err != nil:
		p.say(f.err)
	}
	return f.code
}

// say writes an error for a person, or for a program that asked for JSON.
func (p *program) say(err error) {
	if p.json {
		p.log.Error(err.Error())
		return
	}
	var problems manifests.Diagnostics
	if errors.As(err, &problems) {
		for _, f := range problems {
			p.tell(f.String())
		}
		err = fmt.Errorf("the input has %d %s: nothing was started", len(problems), plural(len(problems), "fault"))
	}
	p.tell("runonce: " + err.Error())
}

// tell writes a line for a person. When that fails there is nobody left to tell.
func (p *program) tell(line string) { _, _ = fmt.Fprintln(p.io.Stderr, line) }

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// Terminal tells whether the file is a terminal.
func Terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Watch ends the context at the first signal, and the program at the second.
func Watch(signals <-chan os.Signal, cancel context.CancelCauseFunc, exit func(int)) {
	for n := 1; ; n++ {
		got, open := <-signals
		sig, ok := got.(syscall.Signal)
		switch {
		case !open:
			return
		case ok && n > 1:
			exit(report.ExitSignal(sig))
		case ok:
			cancel(Interrupt{sig})
		}
	}
}
