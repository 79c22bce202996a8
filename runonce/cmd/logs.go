package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/logs"
)

// logsCommand is "logs".
type logsCommand struct {
	*program
	logOptions
	pastFlags
	sinceText string
	prefix    bool
}

// logOptions select logs and their lines.
type logOptions struct {
	refs        []string // to pods
	choiceFlags          // of pods, if there are no references
	within      string   // the namespace of the pods, "" for all

	container                    string // "" for the one that kubectl chooses
	allContainers                bool
	follow, previous, timestamps bool

	tail      int // lines of each log, or notGiven for all
	since     time.Duration
	sinceTime time.Time // zero for all
	all       bool      // pods
}

// logSource is the log of one container.
type logSource struct {
	pod, container string
	// copy copies what is wanted of the log, without times if lines are.
	copy func(ctx context.Context, to logs.Sinks) error
}

func (p *program) logsCommand() *cli.Command {
	c := &logsCommand{program: p}
	return p.command(cli.Command{
		Name: "logs", Usage: "print the logs of containers", ArgsUsage: "[[NAMESPACE/]POD...]",
		Description: "Each instance of a container has its own log, even after the pod is removed and run again.\n" +
			"The logs of the last 100 removed pods are kept for 30 days, or until 'down --logs'.\n" +
			"A log is printed as is, but on a terminal without control sequences other than colors. Several\n" +
			"are printed line by line, in the order of time or, if they are followed, as the lines come.",
		Flags: []cli.Flag{
			containerFlag(&c.container),
			boolFlag(&c.allContainers, "", "print the logs of all containers of a pod", "all-containers"),
			boolFlag(&c.all, "", "print the logs of all pods that exist", "all"),
			boolFlag(&c.follow, "", "follow the logs until the containers end", "follow", "f"),
			boolFlag(&c.previous, "", "print the log of the previous instance", "previous", "p"),
			boolFlag(&c.prefix, "", "begin each line with pod and container, as several logs do", "prefix"),
			&cli.IntFlag{Name: "tail", Destination: &c.tail, Value: notGiven, Usage: "print only the last `N` lines of a log", DefaultText: "all"},
			&cli.DurationFlag{Name: "since", Destination: &c.since, Usage: "print only lines newer than `DURATION`, such as 5m", DefaultText: "all"},
			&cli.StringFlag{Name: "since-time", Destination: &c.sinceText, Usage: "print only lines from `TIME` on: 2030-01-02T15:04:05Z", DefaultText: "all"},
			boolFlag(&c.timestamps, "", "print the time of each line", "timestamps", "t"),
		},
	}, c, &c.pastFlags, &c.choiceFlags)
}

func (c *logsCommand) run(ctx context.Context, args []string) error {
	c.refs, c.within = args, c.podNamespace
	if err := c.parse(); err != nil {
		return err
	}
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	defer t.close()
	sources, err := t.logSources(ctx, c.logOptions)
	if err == nil {
		err = c.print(ctx, sources)
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// parse refuses options that contradict each other, and reads those that are texts.
func (c *logsCommand) parse() (err error) {
	switch chosen := c.all || c.given(); {
	case len(c.refs) == 0 && !chosen:
		return usagef("logs needs a POD, --selector, --only or --all")
	case len(c.refs) > 0 && chosen, c.all && c.given():
		return usagef("logs needs only one of POD, --all, and --selector or --only")
	case c.container != "" && c.allContainers:
		return usagef("--container and --all-containers exclude each other")
	case c.since > 0 && c.sinceText != "":
		return usagef("--since and --since-time exclude each other")
	}
	if c.sinceText != "" {
		if c.sinceTime, err = time.Parse(time.RFC3339, c.sinceText); err != nil {
			return usagef("--since-time %q: must be a time in RFC 3339, such as 2030-01-02T15:04:05Z", c.sinceText)
		}
	}
	return nil
}

// print prints a log as it is, or several line by line.
func (c *logsCommand) print(ctx context.Context, sources []logSource) error {
	given := slices.ContainsFunc(c.invocation.Given(), func(f cli.Flag) bool { return cmdline.FlagName(f) == "prefix" })
	if len(sources) == 1 && !c.prefix {
		return sources[0].copy(ctx, c.logSinks())
	}
	p := &linePrinter{to: c.logSinks(), timestamps: c.timestamps}
	all := make([]logs.Source, 0, len(sources))
	for _, s := range sources {
		all = append(all, s.lines)
		if c.prefix || !given {
			p.label(s)
		}
	}
	if p.colorOut, p.colorErr = c.colors(), c.colorsOn(c.io.StderrTerminal); c.follow {
		return logs.Interleave(ctx, all, p.print)
	}
	return logs.Merge(ctx, all, p.print)
}

// lines is the source of lines.
func (s logSource) lines(ctx context.Context, line func(logs.Line) error) error {
	return s.copy(ctx, logs.Sinks{Lines: line})
}

// linePrinter prints lines of several logs. Each is written at once, and whole: also what a container has written last,
// without the end of a line.
type linePrinter struct {
	to                 logs.Sinks
	prefixes           []string // by source; none for no prefixes
	timestamps         bool
	colorOut, colorErr bool // of prefixes
	buf                []byte
}

// label gives the next source the prefix that kubectl has.
func (p *linePrinter) label(s logSource) {
	p.prefixes = append(p.prefixes, fmt.Sprintf("[pod/%s/%s]", s.pod, s.container))
}

// prefixColors are the colors of prefixes. Before that, what a line has set ends.
var prefixColors = []string{"36", "33", "32", "35", "34", "31"}

func (p *linePrinter) print(source int, l logs.Line) error {
	b, w, color := p.buf[:0], p.to.Stdout, p.colorOut
	if l.Stream == logs.Stderr {
		w, color = p.to.Stderr, p.colorErr
	}
	switch {
	case len(p.prefixes) == 0:
	case color:
		b = fmt.Appendf(b, "\x1b[0;%sm%s\x1b[0m ", prefixColors[source%len(prefixColors)], p.prefixes[source])
	default:
		b = append(append(b, p.prefixes[source]...), ' ')
	}
	if p.timestamps && !l.Time.IsZero() {
		b = append(l.Time.AppendFormat(b, time.RFC3339Nano), ' ')
	}
	b = append(b, l.Text...)
	if len(b) == 0 || b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	p.buf = b
	_, err := w.Write(b)
	return err
}

// from returns the time from which on lines are wanted, zero for all.
func (o *logOptions) from(now time.Time) time.Time {
	if o.since > 0 {
		return now.Add(-o.since)
	}
	return o.sinceTime
}

// lines returns how many of the last lines are wanted, nil for all.
func (o *logOptions) lines() *int {
	if o.tail == notGiven {
		return nil
	}
	return &o.tail
}

// selected returns the pods that are wanted, of those that exist, if none is named.
func (o *logOptions) selected(pods []*v1.Pod) ([]*v1.Pod, error) {
	return o.choose(inNamespace(o.within, pods))
}

// noSource is the error if no pod is left.
func (o *logOptions) noSource() error {
	if len(o.refs) > 0 {
		return usagef("no container of these pods has a log")
	}
	return usagef("no pod of those that exist has a log, or none is selected; see %q", "runonce ps")
}

// chooseContainer returns the container that is asked for, else the one that kubectl chooses.
func (c *console) chooseContainer(wanted string, mark logs.Mark) string {
	chosen := mark.Chosen(wanted)
	if others := mark.Names(); wanted == "" && mark.Choose() == "" && len(others) > 1 {
		c.println(fmt.Sprintf("Defaulted container %q out of: %s", chosen, strings.Join(others, ", ")))
	}
	return chosen
}

// containerOf is chooseContainer among the containers of a pod.
func (c *console) containerOf(pod *v1.Pod, wanted string) (string, error) {
	mark := runtime.LogMark(pod)
	if wanted != "" && podspec.Container(pod, wanted) == nil {
		return "", usagef("pod %q has no container %q; it has: %s", podspec.FullName(pod), wanted, strings.Join(mark.Names(), ", "))
	}
	return c.chooseContainer(wanted, mark), nil
}

// maxTail limits the last lines of one container in a report, in bytes.
const maxTail = 16 << 10

// podLogs are the logs of the pods on this machine, for results.
type podLogs struct{ pods *runtime.Pods }

// Path returns the log file of an instance of a container.
func (l podLogs) Path(pod *v1.Pod, _, id string) string {
	return l.pods.LogPath(pod, id)
}

// Tail returns the last lines of a log; one that does not exist has none.
func (podLogs) Tail(path string, n int) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	lines, err := logs.Tail(path, n, maxTail)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lines, err
}
