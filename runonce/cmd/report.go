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
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/lastrun"
	"github.com/runonce/runonce/runonce/report"
)

// reportCommand is "report".
type reportCommand struct {
	*program
	outputFlags
	fileFlags
	engineFlags
	exitCode, wait bool
	timeout, limit time.Duration
	files          fileFlags // on the command line
}

func (p *program) reportCommand() *cli.Command {
	c := &reportCommand{program: p, outputFlags: newOutputFlags("table", "wide", "json", "yaml", formatGitHub)}
	return p.command(cli.Command{
		Name: "report", Usage: "print the report of the last run of an input", ArgsUsage: "[PATH...]",
		Description: "PATHs are those of a run on this machine, in any order; without any, it is the last run of all.\n" +
			"If that run has no result because it goes on or was killed, the exit code is 1.",
		Flags: []cli.Flag{
			boolFlag(&c.exitCode, categoryReport, "exit with the exit code of the run", "exit-code"),
			boolFlag(&c.wait, "", "wait for the end of the run that goes on, or of the first one since the boot", "wait"),
			&cli.DurationFlag{Name: "timeout", Destination: &c.timeout, Usage: "end --wait after this `DURATION`", DefaultText: "no limit"},
			p.quietFlag(),
		},
	}, c, &c.outputFlags, &c.fileFlags, &c.engineFlags)
}

// noteGiven: only the command line can set the deadline and name files. Elsewhere they are those of a run.
func (c *reportCommand) noteGiven() { c.limit, c.files = c.timeout, c.fileFlags }

func (c *reportCommand) run(ctx context.Context, args []string) error {
	if c.limit > 0 && !c.wait {
		return usagef("--timeout is about --wait")
	}
	if err := c.files.writable(); err != nil {
		return err
	}
	paths := origins(args)
	find := c.lastRun
	if c.wait {
		find = func(paths []string) (*lastrun.Run, error) { return c.await(ctx, paths) }
	}
	r, err := find(paths)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return unusable(needsRoot("report"))
	case errors.Is(err, fs.ErrNotExist):
		return c.unknown(paths)
	case err != nil:
		return err
	case !r.HasResult():
		return c.showPods(ctx, r)
	}
	return c.show(r)
}

// lastRun returns the last run of the input, or of all inputs without paths.
func (c *reportCommand) lastRun(paths []string) (*lastrun.Run, error) {
	if len(paths) > 0 {
		return lastrun.Load(c.root, paths)
	}
	all, err := lastrun.All(c.root)
	if err == nil && len(all) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// await waits until the last run has a result or was killed. One of before the boot does not count: the run that is
// waited for may not have begun yet.
func (c *reportCommand) await(ctx context.Context, paths []string) (*lastrun.Run, error) {
	if c.limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("--timeout %s has passed", c.limit))
		defer cancel()
		ctx = limited
	}
	shown, end := "", func() {}
	defer func() { end() }()
	for {
		r, err := c.lastRun(paths)
		text := "waiting for the " + described(r)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			text = fmt.Sprintf("waiting for a run%s: none has begun yet", of(paths))
		case err != nil:
			return nil, err
		case r.Alive && !r.HasResult():
		case !r.OfThisBoot():
			text = fmt.Sprintf("waiting for a run%s: none has begun since the machine was started", of(paths))
		default:
			return r, nil
		}
		if text != shown {
			end()
			shown, end = text, c.display.Wait(text)
		}
		select {
		case <-time.After(machinePeriod):
		case <-ctx.Done():
			return nil, exitError{report.ExitFailed, fmt.Errorf("%w: %s", context.Cause(ctx), text)}
		}
	}
}

// of names the input of a run, if there is one.
func of(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	return " of " + lastrun.Names(paths)
}

// described names a run by its input, its process and when it began.
func described(r *lastrun.Run) string {
	if r == nil {
		return ""
	}
	text := r.String()
	if r.PID != 0 {
		text += fmt.Sprintf(" by process %d", r.PID)
	}
	return text + ", which began at " + r.Began.Local().Format(time.DateTime)
}

// unknown says of which inputs there are reports.
func (c *reportCommand) unknown(paths []string) error {
	all, err := lastrun.All(c.root)
	switch {
	case err != nil:
		return err
	case len(all) == 0:
		return usagef("no run%s is known in %s", of(paths), c.root)
	}
	names := make([]string, 0, len(all))
	for _, r := range all {
		names = append(names, lastrun.Names(r.Paths))
	}
	slices.Sort(names)
	return usagef("no run%s is known in %s; there are those of %s", of(paths), c.root, strings.Join(names, ", "))
}

// show writes the report as the run did, and returns an error with the exit code.
func (c *reportCommand) show(r *lastrun.Run) error {
	if !c.quiet {
		c.notice(fmt.Sprintf("%s: %s", described(r), ended(r)))
	}
	document := r.Report.Restore()
	if c.files.junitFile != "" {
		c.readOutputs(document)
	}
	var err error
	switch failure := document.Failure; {
	case len(failure.Faults) > 0:
		c.printError(failure.Faults)
		err = c.writeFailedReport(c.output, document, r.Report.Faults)
	case failure.Error != "":
		c.printError(errors.New(failure.Error))
		err = c.writeFailedReport(c.output, document, r.Report.Faults)
	default:
		err = c.writeReport(c.output, document, r.Report.Faults)
	}
	c.reported = true
	err = errors.Join(err, report.WriteFile(c.files.junitFile, document.JUnit), report.WriteFile(c.files.timelines, document.Timeline),
		report.WriteFile(c.files.portsTo, document.PortVariables))
	if err != nil || !c.exitCode {
		return err
	}
	return exitWith(r.ExitCode, nil)
}

// ended says when the run ended, and how.
func ended(r *lastrun.Run) string {
	ago := duration.HumanDuration(max(0, time.Since(r.Reported))) + " ago"
	if r.Ended.IsZero() {
		return "goes on, this is its table of " + ago
	}
	return fmt.Sprintf("ended %s with exit code %d", ago, r.ExitCode)
}

// readOutputs reads the ends of logs, which are in JUnit reports alone, as far as the logs are still there.
func (c *reportCommand) readOutputs(r report.Report) {
	for i := range r.Results {
		for n := range r.Results[i].Containers {
			if err := r.Results[i].Containers[n].ReadOutput(podLogs{}); err != nil {
				c.log.Warn("could not read the end of a log", "error", err)
			}
		}
	}
}

// showPods shows the pods of a run that has no result, in a table, and returns an error that says why it has none.
func (c *reportCommand) showPods(ctx context.Context, r *lastrun.Run) error {
	none := fmt.Errorf("the %s, has not ended: --wait waits for it", described(r))
	if !r.Alive {
		none = fmt.Errorf("the %s, has ended without a result: it was killed, or the machine stopped", described(r))
	}
	if c.output == "table" || c.output == "wide" {
		if err := c.writePods(ctx, r.Paths); err != nil {
			c.log.Warn("could not look for the pods of the run", "error", err)
		}
	}
	return exitError{report.ExitFailed, none}
}

// writePods writes the table of the pods that came from the paths, if there are any.
func (c *reportCommand) writePods(ctx context.Context, paths []string) error {
	t := c.machine(c.engine(c.console))
	defer t.close()
	states, err := t.states(ctx, nil)
	if err != nil {
		return err
	}
	states = slices.DeleteFunc(states, func(s report.PodState) bool { return !cameFrom(s.Pod, paths) })
	if len(states) == 0 {
		return nil
	}
	c.addContainers(ctx, states, t)
	return report.NewPods(states).Table(c.io.Stdout, report.Style{Wide: c.output == "wide", Color: c.colors()}, time.Now())
}

// cameFrom says whether the pod was read from one of the paths.
func cameFrom(pod *v1.Pod, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return podspec.CameFrom(pod, path) })
}

func (c *reportCommand) fail(r report.Report) error {
	return errors.Join(report.WriteFile(c.files.junitFile, r.JUnit), c.writeFailedReport(c.output, r, nil))
}

// recordRun notes that a run of the paths begins, so that "report" knows it, whatever becomes of it.
func (p *program) recordRun(root string, paths []string) {
	if len(paths) == 0 {
		return
	}
	var err error
	if p.last, err = lastrun.Begin(root, p.invocation.Name(), origins(paths)); err != nil && !errors.Is(err, fs.ErrPermission) {
		p.warnOfReport(err)
	}
}

// keepReport keeps the report of the run that is recorded, if one is.
func (p *program) keepReport(r report.Report, faults manifests.Diagnostics, ends bool) {
	if err := p.last.Report(r.Save(faults), ends); err != nil {
		p.warnOfReport(err)
	}
}

// wantsEvents says whether the report is to have the events of all pods: for a program, or for one that asks later.
func (p *program) wantsEvents(format string) bool {
	return p.last != nil || format == "json" || format == "yaml"
}

// endRun has others know that the run has ended, if one is recorded.
func (p *program) endRun(code int) {
	if err := p.last.End(code); err != nil {
		p.warnOfReport(err)
	}
}

func (p *program) warnOfReport(err error) {
	p.log.Warn(`"runonce report" will not show this run`, "error", err)
}

// neverStarted returns the pods that the last runs have not started, without those of which one of the same name is
// known.
func (t *nodeTarget) neverStarted(known []report.PodState) ([]report.PodState, error) {
	runs, err := lastrun.All(t.options.PodsRoot)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, s := range known {
		seen[podspec.FullName(s.Pod)] = true
	}
	var states []report.PodState
	for _, r := range runs {
		if r.Report == nil {
			continue
		}
		for _, s := range r.Report.Restore().NeverStarted(r.Reported) {
			if name := podspec.FullName(s.Pod); !seen[name] {
				seen[name], states = true, append(states, s)
			}
		}
	}
	return states, nil
}

// neverStarted returns none: no reports of runs on a cluster are kept.
func (t *clusterTarget) neverStarted([]report.PodState) ([]report.PodState, error) { return nil, nil }
