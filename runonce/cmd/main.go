// Package cmd is the command line: it reads flags, connects the packages and maps the result of
// a command to its exit code. Results go to standard output, progress and log messages to
// standard error.
package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/cluster"
	"github.com/runonce/runonce/runtime/containerd"
)

// IO is what a command uses of its process and of the machine.
type IO struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// StdoutTerminal turns on colors, and StderrTerminal bars.
	StdoutTerminal bool
	StderrTerminal bool
	// Signals interrupt the command, the first one, and end the process with Exit, the second
	// one; nil for none.
	Signals <-chan os.Signal
	// CatchHangups makes SIGHUP come to Signals also if it was ignored; nil for what does not matter.
	CatchHangups func()
	// CatchPipes makes SIGPIPE harmless, which would end the process at the next line of progress that
	// nobody reads, and leave pods half-way. It is not ignored: the programs that the process starts
	// would inherit that. Nil for what does not matter.
	CatchPipes func()
	Exit       func(code int)
	// Notify sends a message to the service manager, as of sd_notify(3); nil if there is none.
	Notify func(message string)
	// Journal is the socket of systemd's journal, which need not exist.
	Journal string
	// Getenv returns an environment variable.
	Getenv func(string) string
	// Environ returns all environment variables, as KEY=VALUE; nil for none.
	Environ func() []string
	// Machine is the root file system, from which the node is detected.
	Machine fs.FS
	// Open opens the container engine.
	Open func(ctx context.Context, o backend.Options) (backend.Engine, error)
	// Versions returns the versions of the daemon and the OCI runtime without opening the
	// engine; nil leaves them out.
	Versions func(ctx context.Context, o containerd.Options) (containerd.Versions, error)
}

// Interrupt is the cause of a context that was canceled by a signal.
type Interrupt struct{ Signal syscall.Signal }

func (i Interrupt) Error() string { return "interrupted: " + i.Signal.String() }

// Main runs a command and returns its exit code. The first argument is the program's name.
func Main(ctx context.Context, arguments []string, process IO) int {
	p := &program{
		io: process, start: time.Now(), display: progress.New(process.Stderr, process.Notify),
		settings: &cmdline.Settings{}, copies: &logCopies{}, hangups: make(chan struct{}, 1),
	}
	p.io.Stderr = p.display.Stderr()
	p.io.Stdout = p.display.Stdout(process.Stdout)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if process.Signals != nil {
		done := make(chan struct{})
		defer close(done)
		go p.watch(cancel, done)
	}
	p.root = p.rootCommand()
	if cmdline.IsCompletion(arguments) {
		p.setDefaults(arguments)
		cmdline.Complete(process.Stdout, arguments, p.root)
		return report.ExitOK
	}
	err := p.runCommandLine(ctx, arguments)
	p.display.Close()
	return p.exitCode(ctx, p.located(err))
}

// runCommandLine runs the command that the arguments name.
func (p *program) runCommandLine(ctx context.Context, arguments []string) error {
	p.invocation = cmdline.Parse(arguments, p.root)
	if err := p.invocation.CheckCommand(p.root); err != nil {
		return badInput(err)
	}
	c, err := p.invocation.Context(ctx)
	switch {
	case err != nil:
		return badInput(err)
	case c.Bool("help"):
		return p.help(strings.Fields(p.invocation.Name())...)
	case works(c.Command):
		if err := p.configure(c); err != nil {
			return err
		}
	}
	return c.Command.Action(c)
}

// program is one invocation.
type program struct {
	io         IO
	display    *progress.Display
	root       *cli.Command // the program itself
	invocation cmdline.Invocation
	start      time.Time
	log        *slog.Logger
	structured bool              // messages are entries of the log as well
	settings   *cmdline.Settings // of flags that are not on the command line
	junit      string            // file for a JUnit report
	copies     *logCopies        // of logs, for --logs-to
	reported   bool              // the results of the command are written
	reloads    atomic.Bool       // SIGHUP is not an interrupt, but comes to hangups
	hangups    chan struct{}
	cluster    *cluster.Config       // nil for this machine
	faults     manifests.Diagnostics // warnings of the manifests, and errors of those that are skipped
	// variables are substituted in manifests; nil for none.
	variables func(name string) (string, bool)
}

// rootCommand describes the command line. Invocations share nothing of it.
func (p *program) rootCommand() *cli.Command {
	root := &cli.Command{
		HelpName:    "runonce",
		Usage:       "run a directory of Kubernetes pod manifests on this machine, once",
		UsageText:   "runonce [run] [flags] PATH...\nrunonce COMMAND [flags] [arguments]",
		Description: configurationHelp,
		Flags:       []cli.Flag{helpFlag()},
		Action: func(*cli.Context) error {
			return usagef("no PATH given: name a directory of pod manifests, or see %q", "runonce help")
		},
		Subcommands: []*cli.Command{
			p.runCommand(), p.watchCommand(), p.planCommand(), p.validateCommand(), p.psCommand(), p.logsCommand(),
			p.downCommand(), p.imagesCommand(), p.versionCommand(), p.completionCommand(), p.helpCommand(),
		},
	}
	addDefaults(root)
	return root
}

// addDefaults adds what all commands below another one have.
func addDefaults(parent *cli.Command) {
	for _, c := range parent.Subcommands {
		c.HelpName = parent.HelpName + " " + c.Name
		c.Flags = append(c.Flags, helpFlag())
		addDefaults(c)
	}
}

func helpFlag() cli.Flag { return boolFlag("", "show this help", "help", "h") }

func (p *program) helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "show help for a command", ArgsUsage: "[COMMAND]",
		Action: func(c *cli.Context) error { return p.help(c.Args().Slice()...) },
	}
}

// help prints the help of a command.
func (p *program) help(names ...string) error {
	command, err := cmdline.Find(p.root, names)
	if err != nil {
		return badInput(err)
	}
	return cmdline.Help(p.io.Stdout, command)
}

// exitCode prints the error and returns the exit code. A command that has not written its document
// yet writes one about the error.
func (p *program) exitCode(ctx context.Context, err error) int {
	if err == nil {
		return report.ExitOK
	}
	code, err := exitOf(ctx, err)
	if err != nil {
		p.printError(err)
		if err := p.writeFailure(code, err); err != nil {
			p.printError(err)
		}
	}
	return code
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

// printError prints an error, in one line if possible, or as JSON if the log messages are.
func (p *program) printError(err error) {
	if p.structured {
		p.log.Error(err.Error())
		return
	}
	var problems manifests.Diagnostics
	if errors.As(err, &problems) {
		p.printProblems(problems)
		result := "nothing was started"
		if e := (*inputError)(nil); errors.As(err, &e) {
			result = e.result
		}
		err = fmt.Errorf("the input has %s: %s", runonce.Count(len(problems), "error"), result)
	}
	p.println("runonce: " + err.Error())
}

// afterError returns the second of two errors, and prints the first one, if there are both: each may have
// an exit code of its own.
func (p *program) afterError(first, second error) error {
	if first == nil || second == nil {
		return cmp.Or(first, second)
	}
	p.printError(first)
	return second
}

// printProblems prints one line for each error or warning of the manifests.
func (p *program) printProblems(problems manifests.Diagnostics) {
	for _, problem := range problems {
		switch {
		case problem.Severity == manifests.SeverityWarning:
			p.log.Warn(problem.String())
		case p.structured:
			p.log.Error(problem.String())
		default:
			p.println(problem.String())
		}
	}
}

// notice prints what the user should know, if there is anything.
func (p *program) notice(text string) {
	switch {
	case text == "":
	case p.structured:
		p.log.Warn(text)
	default:
		p.println("runonce: " + text)
	}
}

// println prints a line to standard error. If that fails there is nowhere to report it.
func (p *program) println(line string) { _, _ = fmt.Fprintln(p.io.Stderr, line) }

// Terminal says whether the file is a terminal.
func Terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// outliveReaders has the command go on when nobody reads its progress any more.
func (p *program) outliveReaders() {
	if p.io.CatchPipes != nil {
		p.io.CatchPipes()
	}
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
