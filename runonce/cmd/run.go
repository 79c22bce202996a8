package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/record"
)

// defaultSettle is long enough to see a program die that cannot even begin.
const defaultSettle = 100 * time.Millisecond

func (p *program) runCommand() *cli.Command {
	d := runonce.DefaultBackoff()
	flags := []cli.Flag{
		&cli.StringFlag{Name: "until", Category: categoryRun, Value: "running", Usage: "what counts as done: running, ready or completed"},
		&cli.DurationFlag{Name: "retry-delay", Category: categoryRun, Value: d.Delay, Usage: "before the first retry"},
		&cli.Float64Flag{Name: "retry-factor", Category: categoryRun, Value: d.Factor, Usage: "by which each delay is longer than the one before"},
		&cli.IntFlag{Name: "max-retries", Category: categoryRun, Value: d.Retries, Usage: "of a pod after transient errors, of a failed pod of a Job, and restarts of a container that crashes"},
		&cli.DurationFlag{Name: "timeout", Category: categoryRun, Usage: "for the whole run (default: none beyond the retries)"},
		&cli.DurationFlag{Name: "settle", Category: categoryRun, Value: defaultSettle, Usage: "how long a container must have run to count as running"},
		&cli.IntFlag{Name: "parallel", Category: categoryRun, Usage: "`N` pods launched at once (default: twice the processors)"},
		&cli.BoolFlag{Name: "rm", Category: categoryRun, Usage: "remove what was started, once the result is known"},
		&cli.StringFlag{Name: "claims-dir", Category: categoryEngine, Usage: "`DIR` for the data of claims, NAMESPACE/CLAIM (default: claims below --root)"},
		&cli.StringFlag{Name: "images-dir", Category: categoryEngine, Usage: "`DIR` of archives (tar, gz, zst) and OCI layouts to import first"},
		&cli.StringFlag{Name: "exit-code-from", Category: categoryReport, Usage: "pass on the exit code of `POD[/CONTAINER]`"},
		&cli.StringFlag{Name: "junit", Category: categoryReport, Usage: "`FILE` for a JUnit report"},
		&cli.StringFlag{Name: "timeline", Category: categoryReport, Usage: "`FILE` for a timeline (SVG)"},
		&cli.StringFlag{Name: "cgroup-driver", Category: categoryRun, Value: cgroup.DriverCgroupfs, Usage: "what makes the cgroups of new pods: `cgroupfs|systemd`"},
		&cli.Int64Flag{Name: "pod-pids-limit", Category: categoryRun, Value: -1, Usage: "`N` processes in a pod at most (-1: no limit)"},
		securityFlag(),
		outputFlag("table, wide, json or yaml"),
	}
	return &cli.Command{
		Name: "run", Usage: "run the pods of manifests, and wait until they are at their goal",
		ArgsUsage: "PATH...", Action: p.withLogger(p.run),
		Description: "PATH is a directory, a file, or - for standard input.",
		Flags:       slices.Concat(flags, nodeFlags(), networkFlags(), planFlags(), inputFlags(), engineFlags()),
	}
}

// run reads, decides, runs and reports.
func (p *program) run(c *cli.Context) error {
	start := time.Now()
	o, err := runOptions(c)
	if err != nil {
		return err
	}
	o.Start, o.Logger, o.Progress = start, p.log, p.progress
	format, err := formatOf(c, "table", "wide", "json", "yaml")
	if err != nil {
		return err
	}
	for _, flag := range []string{"junit", "timeline"} {
		if err := report.Writable(c.String(flag)); err != nil {
			return usagef("--%s: %w", flag, err)
		}
	}
	set, err := p.read(c)
	if err != nil {
		return err
	}
	s, err := p.setUp(c, set)
	if err != nil {
		return err
	}
	defer s.close()
	plan, err := p.claim(c, set, s, start)
	if late := (*turnError)(nil); errors.As(err, &late) {
		results := runonce.Unplanned(set.Pods, late.outcome, late.Error(), time.Since(start))
		return p.report(c, format, append(results, invalid(set)...), time.Since(start))
	}
	if err != nil {
		return err
	}
	o.Trace, o.Logs = &s.trace, logDir(c.String("log-dir"))
	o.Cleared = func() { s.note(s.run.Leave()) }
	results := runonce.Run(c.Context, s.pods, plan, o)
	results = append(results, invalid(set)...)
	return p.report(c, format, results, time.Since(start))
}

// claim waits for this run's turn to plan, makes the plan, and books the resources of its pods.
// Its turn lasts until what has to go has gone.
func (p *program) claim(c *cli.Context, set *manifests.Set, s *session, start time.Time) (admit.Plan, error) {
	if err := enter(c, s.run, start); err != nil {
		return admit.Plan{}, err
	}
	plan, err := p.decide(c, set, s)
	if err != nil {
		return plan, err
	}
	if err := s.run.Reserve(plan.Admitted()); err != nil {
		return plan, unusable(err)
	}
	for _, d := range plan.Departures() {
		if err := s.run.Revoke(d.Pod, d.By); err != nil {
			return plan, unusable(err)
		}
	}
	return plan, nil
}

// errTurn is the cause of a run that has waited for its turn until its timeout.
var errTurn = errors.New("the timeout of the run has passed")

// turnError says that the run was over before its turn to plan came.
type turnError struct {
	error
	outcome runonce.Outcome
}

// enter waits for the run's turn to plan, no longer than the run may take.
func enter(c *cli.Context, run *record.Run, start time.Time) error {
	ctx := c.Context
	if most := c.Duration("timeout"); most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, start.Add(most), errTurn)
		defer cancel()
	}
	err := run.Enter(ctx)
	switch {
	case errors.Is(err, errTurn):
		return &turnError{err, runonce.TimedOut}
	case err != nil && c.Context.Err() != nil:
		return &turnError{err, runonce.Canceled}
	case err != nil:
		return unusable(err)
	}
	return nil
}

// report writes the results wherever they are asked for and maps them to the exit code.
func (p *program) report(c *cli.Context, format string, results []runonce.Result, elapsed time.Duration) error {
	var interrupt Interrupt
	errors.As(context.Cause(c.Context), &interrupt)
	code := report.ExitCode(results, interrupt.Signal)
	var asked error
	if from := c.String("exit-code-from"); from != "" && code < report.ExitSignal(syscall.SIGHUP) {
		own, err := report.ExitCodeFrom(results, from)
		if err == nil {
			code = own
		} else if code == report.ExitOK {
			code, asked = report.ExitFailed, err
		}
	}
	r := report.New(results, code, elapsed)
	err := errors.Join(
		p.write(format, r, func(s report.Style) error { return r.Table(p.io.Stdout, s) }),
		report.WriteFile(c.String("junit"), r.JUnit),
		report.WriteFile(c.String("timeline"), r.Timeline),
		asked,
	)
	if err != nil && code == report.ExitOK {
		code = report.ExitFailed
	}
	return exitWith(code, err)
}

// read reads the manifests that the arguments name.
func (p *program) read(c *cli.Context) (*manifests.Set, error) {
	if c.Args().Len() == 0 {
		return nil, usagef("no PATH given: name a directory of pod manifests, a file, or - for standard input")
	}
	set, err := manifests.ReadPaths(c.Context, c.Args().Slice(), p.inputOptions(c))
	for _, w := range set.Warnings {
		p.log.Warn(w.String())
	}
	switch {
	case context.Cause(c.Context) != nil:
		return nil, context.Cause(c.Context)
	case err != nil && (!c.Bool("skip-invalid") || len(set.Pods) == 0):
		return nil, badInput(err)
	case len(set.Pods) == 0:
		return nil, usagef("no pod in %s", list(c.Args().Slice()))
	}
	return set, nil
}

// invalid makes rows of what the user asked to go on without.
func invalid(set *manifests.Set) []runonce.Result {
	rows := make([]runonce.Result, 0, len(set.Invalid))
	for _, in := range set.Invalid {
		pod := &v1.Pod{}
		pod.Namespace, pod.Name = in.Namespace, in.Name
		pod.Annotations = map[string]string{podspec.AnnotationSource: fmt.Sprintf("%s:%d", in.File, in.Line)}
		rows = append(rows, runonce.Result{
			Pod: pod, Outcome: runonce.Invalid, Reason: "Invalid", Message: in.Problems.Error(),
			Status: v1.PodStatus{Phase: v1.PodPending},
		})
	}
	return rows
}

// decide makes the plan.
func (p *program) decide(c *cli.Context, set *manifests.Set, s *session) (admit.Plan, error) {
	// First the bookings: what is started meanwhile is found among the running pods.
	booked, err := s.run.Reserved()
	if err != nil {
		return admit.Plan{}, unusable(err)
	}
	running, err := s.pods.List(c.Context)
	if err != nil {
		return admit.Plan{}, unusable(fmt.Errorf("looking for pods of earlier runs: %w", err))
	}
	o, err := p.admitOptions(c, set, true)
	if err != nil {
		return admit.Plan{}, err
	}
	o.Reserved = booked
	o.MissingFeatures = s.engine.Unable(c.Context, set.Pods)
	return admit.Decide(s.node, running, set.Pods, o), nil
}

// progress tells somebody who looks at a terminal what happens, and the log in any case.
func (p *program) progress(e runonce.Progress) {
	name := e.Pod.Namespace + "/" + e.Pod.Name
	p.log.Info(e.State, "pod", name, "message", e.Message, "done", e.Done, "total", e.Total)
	if !p.io.StderrTerminal || p.json {
		return
	}
	line := fmt.Sprintf("[%d/%d] %s: %s", e.Done, e.Total, name, e.State)
	if e.Message != "" {
		line += ": " + e.Message
	}
	p.tell(line)
}
