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
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit/nodeinfo"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
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
	// Program is this program's file, for processes that outlive this one; empty if there is none.
	Program string
	// Terminal is the one that Stdin reads from; nil if that is none.
	Terminal Terminal
	// Guard starts a process that ends a command in a container if this process ends before it has called release.
	Guard func(o backend.Options, container, command string) (release func(), err error)
	// ExecRunning runs a command in a container without opening the engine, if ok says that this was possible; nil
	// for never.
	ExecRunning func(ctx context.Context, o containerd.Options, in containerd.PodContainer, c engine.Command, s engine.Streams) (code int32, ok bool, err error)
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
	// Statfs measures the file system that has a directory; nil stands for nodeinfo.Statfs.
	Statfs func(dir string) (nodeinfo.Filesystem, error)
	// FreePort returns a port on which nobody listens at an address, "" for all; nil stands for backend.FreePort.
	FreePort func(ctx context.Context, protocol v1.Protocol, ip string) (int32, error)
	// Inotify returns what has the events of files; nil stands for fsnotify.NewWatcher.
	Inotify func() (*fsnotify.Watcher, error)
	// Open opens the container engine.
	Open func(ctx context.Context, o backend.Options) (backend.Engine, error)
	// Versions returns the versions of the daemon and the OCI runtime without opening the
	// engine; nil leaves them out.
	Versions func(ctx context.Context, o backend.Options) (containerd.Versions, error)
	// Examine tries what a run needs of the machine; nil stands for backend.Examine.
	Examine func(ctx context.Context, o backend.Options) (backend.Examination, error)
}

// Terminal is one on which commands in containers work.
type Terminal interface {
	// Raw has the terminal pass everything on as it is typed, until restore is called.
	Raw() (restore func(), err error)
	// Size returns its present size, zero if that is not known.
	Size() engine.Size
	// Sizes returns its sizes, the present one first, until ctx is done.
	Sizes(ctx context.Context) <-chan engine.Size
}

// console is what commands use of their process: where they read and write, and their log.
type console struct {
	io         IO
	data       logs.Sinks // for documents and logs
	inJob      bool       // a runner reads the output
	display    *progress.Display
	log        *slog.Logger
	structured bool // messages are entries of the log as well
	reported   bool // the results of the command are written
	// restore, if it is set, restores the terminal, also if the process exits at once.
	restore atomic.Pointer[func()]
}

// newConsole has everything written through a display. In a job, only data are as they are.
func newConsole(process IO) *console {
	c := &console{io: process}
	if c.io.Statfs == nil {
		c.io.Statfs = nodeinfo.Statfs
	}
	if c.io.FreePort == nil {
		c.io.FreePort = backend.FreePort
	}
	if c.io.Examine == nil {
		c.io.Examine = backend.Examine
	}
	stdout, stderr := process.Stdout, process.Stderr
	if c.inJob = process.Getenv != nil && report.InJob(process.Getenv); !c.inJob {
		c.display = progress.New(stderr, process.Notify)
		c.io.Stdout, c.io.Stderr = c.display.Stdout(stdout), c.display.Stderr()
		c.data = logs.Sinks{Stdout: c.io.Stdout, Stderr: c.io.Stderr}
		return c
	}
	c.display = progress.New(report.Inert(stderr), process.Notify)
	c.data = logs.Sinks{Stdout: c.display.Stdout(stdout), Stderr: stderr}
	c.io.Stdout, c.io.Stderr = report.Inert(c.data.Stdout), c.display.Stderr()
	return c
}

// openLog sets up the log messages as the flags say, and the display.
func (c *console) openLog(ctx context.Context, f *logFlags, quiet bool) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return usagef("--log-level %q: must be debug, info, warn or error", f.logLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "text":
		c.log = slog.New(newTextHandler(c.io.Stderr, o))
	case "json":
		c.log, c.structured = slog.New(slog.NewJSONHandler(c.io.Stderr, o)), true
	case "journal":
		h, err := newJournalHandler(c.io.Journal, o)
		if err != nil {
			return usagef("--log-format journal: %w", err)
		}
		c.log, c.structured = slog.New(h), true
	default:
		return usagef("--log-format %q: must be text, json or journal", f.logFormat)
	}
	c.configureDisplay(ctx, quiet)
	return nil
}

// configureDisplay turns the display on, unless the command is to be quiet. With --log-format json or
// journal, and at the log levels info and debug, events are log messages instead of lines.
func (c *console) configureDisplay(ctx context.Context, quiet bool) {
	var log *slog.Logger
	if c.structured || c.log.Enabled(ctx, slog.LevelInfo) {
		log = c.log
	}
	mode := progress.Lines
	switch {
	case quiet:
		mode = progress.Off
	case c.io.StderrTerminal && !c.dumbTerminal() && !c.structured:
		mode = progress.Bars
	}
	c.display.Configure(mode, log, c.structured)
}

// printError prints an error, in one line if possible, or as JSON if the log messages are.
func (c *console) printError(err error) {
	if c.structured {
		c.log.Error(err.Error())
		return
	}
	var problems manifests.Diagnostics
	if errors.As(err, &problems) {
		c.printProblems(problems)
		result := "nothing was started"
		if e := (*inputError)(nil); errors.As(err, &e) {
			result = e.result
		}
		err = fmt.Errorf("the input has %s: %s", runonce.Count(len(problems), "error"), result)
	}
	c.println("runonce: " + err.Error())
}

// afterError returns the second of two errors, and prints the first one, if there are both: each may have
// an exit code of its own.
func (c *console) afterError(first, second error) error {
	if first == nil || second == nil {
		return cmp.Or(first, second)
	}
	c.printError(first)
	return second
}

// printProblems prints one line for each error or warning of the manifests.
func (c *console) printProblems(problems manifests.Diagnostics) {
	for _, problem := range problems {
		switch {
		case problem.Severity == manifests.SeverityWarning:
			c.log.Warn(problem.String())
		case c.structured:
			c.log.Error(problem.String())
		default:
			c.println(problem.String())
		}
	}
}

// notice prints what the user should know, if there is anything.
func (c *console) notice(text string) {
	switch {
	case text == "":
	case c.structured:
		c.log.Warn(text)
	default:
		c.println("runonce: " + text)
	}
}

// println prints a text to standard error. If that fails there is nowhere to report it.
func (c *console) println(text string) {
	_, _ = fmt.Fprintln(c.io.Stderr, report.PrintableLines(text))
}

// logSinks returns where a log is written: as it is, except that a terminal gets nothing that controls it.
func (c *console) logSinks() logs.Sinks {
	sinks := c.data
	if c.io.StdoutTerminal {
		sinks.Stdout = report.TerminalText(sinks.Stdout, c.colors())
	}
	if c.io.StderrTerminal {
		sinks.Stderr = report.TerminalText(sinks.Stderr, c.colors())
	}
	return sinks
}

// outliveReaders has the command go on when nobody reads its progress any more.
func (c *console) outliveReaders() {
	if c.io.CatchPipes != nil {
		c.io.CatchPipes()
	}
}

// environ returns the environment variables, as KEY=VALUE.
func (c *console) environ() []string {
	if c.io.Environ == nil {
		return nil
	}
	return c.io.Environ()
}

// colors tells whether the output is colored: only on a terminal that can do it, and not against
// the user's wish (no-color.org).
func (c *console) colors() bool { return c.colorsOn(c.io.StdoutTerminal) }

func (c *console) colorsOn(terminal bool) bool {
	return terminal && c.io.Getenv("NO_COLOR") == "" && !c.dumbTerminal()
}

// dumbTerminal says whether the terminal has neither colors nor a cursor that moves.
func (c *console) dumbTerminal() bool { return c.io.Getenv("TERM") == "dumb" }
