package cmd

import (
	"cmp"
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
	"github.com/runonce/runonce/internal/systemd"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/cgroup"
)

const (
	// defaultSettle is long enough to notice most programs that cannot do their work.
	defaultSettle = 3 * time.Second
	// defaultScheduleTimeout is long enough for a cluster that preempts or starts a node.
	defaultScheduleTimeout = time.Minute
)

// The values of --swap.
const (
	swapNone    = "none"
	swapLimited = "limited"
)

// startFlags are what run and watch have in common besides podFlags: they say how pods are started.
type startFlags struct {
	networkFlags
	until                                  string
	settle                                 time.Duration
	parallel                               int
	claimsDir, cgroupDriver, containerLogs string
	podPidsLimit                           int64
	healthcheck                            bool
	seccompDefault                         bool
	swap                                   string
}

func (f *startFlags) flags() []cli.Flag {
	return append(f.networkFlags.flags(),
		textFlag(&f.until, categoryRun, "wait for this `GOAL`: running, ready or completed", "until", string(runonce.UntilRunning)),
		durationFlag(&f.settle, categoryRun, "count a container as running after this `DURATION`", "settle", defaultSettle),
		&cli.IntFlag{Name: "parallel", Destination: &f.parallel, Category: categoryRun, Usage: "start up to `N` pods at once", DefaultText: "three times the processors"},
		&cli.StringFlag{Name: "claims-dir", Destination: &f.claimsDir, Category: categoryEngine, Usage: "keep the data of claims in `DIR`/NAMESPACE/CLAIM", DefaultText: "claims in --root"},
		textFlag(&f.cgroupDriver, categoryRun, "manage cgroups with `DRIVER`: cgroupfs or systemd", "cgroup-driver", cgroup.DriverCgroupfs),
		&cli.Int64Flag{Name: "pod-pids-limit", Destination: &f.podPidsLimit, Value: -1, Category: categoryRun, Usage: "limit each pod to `N` processes, -1 for no limit"},
		boolFlag(&f.healthcheck, categoryImages, "use HEALTHCHECKs of images as readiness probes", "healthcheck"),
		boolFlag(&f.seccompDefault, categoryRun, "confine containers without a seccompProfile by RuntimeDefault", "seccomp-default"),
		textFlag(&f.swap, categoryRun, "`SWAP` of Burstable pods: none or limited", "swap", swapNone),
		textFlag(&f.containerLogs, categoryRun, "log containers to `PLACE`: files, or journal for both", "container-logs", "files"),
	)
}

func (f *startFlags) check() error {
	if f.claimsDir != "" {
		if err := resolveDir("claims-dir", &f.claimsDir); err != nil {
			return err
		}
	}
	if n := f.podPidsLimit; n == 0 || n < -1 {
		return usagef("--pod-pids-limit %d: must be a number of processes, or -1 for no limit", n)
	}
	return cmp.Or(
		checkOneOf("cgroup-driver", f.cgroupDriver, cgroup.DriverCgroupfs, cgroup.DriverSystemd),
		checkOneOf("swap", f.swap, swapNone, swapLimited),
		checkOneOf("container-logs", f.containerLogs, "files", "journal"),
		f.networkFlags.check(),
	)
}

// setTo says how to start pods.
func (f *startFlags) setTo(o *backend.Options) {
	f.networkFlags.setTo(o)
	if f.claimsDir != "" {
		o.ClaimsDir = f.claimsDir
	}
	o.CgroupDriver, o.PodPidsLimit, o.Healthchecks = f.cgroupDriver, f.podPidsLimit, f.healthcheck
	o.SeccompDefault, o.LimitedSwap = f.seccompDefault, f.swap == swapLimited
}

// journal returns the socket of the journal that the output of containers goes to, or "".
func (f *startFlags) journal(c *console) (string, error) {
	if f.containerLogs == "files" {
		return "", nil
	}
	if err := systemd.Check(c.io.Journal); err != nil {
		return "", usagef("--container-logs journal: %w", err)
	}
	return c.io.Journal, nil
}

// options returns how a plan is carried out.
func (f *startFlags) options(c *console, retry runonce.Backoff) runonce.Options {
	return runonce.Options{
		Until: runonce.Until(f.until), Retry: retry, Parallel: f.parallel, Settle: f.settle,
		Start: time.Now(), Logger: c.log, Progress: c.display.Pod,
	}
}

// runCommand is "run".
type runCommand struct {
	*program
	podFlags
	startFlags
	earlierFlags
	outputFlags
	fileFlags
	clusterFlags
	creationFlags
	queueFlags
	metricsFlags
	followFlags
	interactiveFlags
	removalFlags
	maxRestarts          int
	timeout              time.Duration
	failFast             bool
	exitCodeFrom, logsTo string
	scheduleTimeout      time.Duration

	planning *planning
	copies   logCopies // for --logs-to
	junit    string    // junitFile, when it can be written
	meter    *meter    // for --metrics

	interaction *interaction // nil unless the container works with this process
	seen        bool         // all that the container did was seen here
	unseen      error        // why its output was not complete
}

func (p *program) runCommand() *cli.Command {
	c := &runCommand{program: p, outputFlags: newOutputFlags("table", "wide", "json", "yaml", formatGitHub)}
	return p.command(cli.Command{
		Name: "run", Usage: "run the pods of manifests and wait until they reach their goal", ArgsUsage: "PATH...",
		Description: "PATH is a directory, a file, a URL, or - for standard input. \"run\" may be omitted; then\n" +
			"a PATH with the name of a command needs ./ in front.",
		Flags: []cli.Flag{
			numberFlag(&c.maxRestarts, categoryRun, "restart a container up to `N` times after crashes", "max-restarts", runonce.DefaultMaxRestarts),
			&cli.DurationFlag{Name: "timeout", Destination: &c.timeout, Category: categoryRun, Usage: "end the run, including --rm, after this `DURATION`", DefaultText: "no limit"},
			boolFlag(&c.failFast, categoryRun, "end the run when the first pod has failed", "fail-fast"),
			textFlag(&c.exitCodeFrom, categoryReport, "wait for the end of `POD[/CONTAINER]` and exit with its exit code", "exit-code-from", ""),
			textFlag(&c.logsTo, categoryReport, "write the log of each container to a file in `DIR`", "logs-to", ""),
			durationFlag(&c.scheduleTimeout, categoryCluster, "reject a pod that has no node after this `DURATION`", "schedule-timeout", defaultScheduleTimeout),
			p.quietFlag(),
		},
	}, c, &c.podFlags, &c.startFlags, &c.earlierFlags, &c.outputFlags, &c.fileFlags, &c.clusterFlags, &c.creationFlags, &c.queueFlags, &c.metricsFlags, &c.followFlags, &c.interactiveFlags, &c.removalFlags)
}

// options returns how the plan is carried out.
func (c *runCommand) options() runonce.Options {
	o := c.startFlags.options(c.console, c.backoff)
	o.Timeout, o.FailFast, o.Remove, o.MaxRestarts = c.timeout, c.failFast, c.removal(), &c.maxRestarts
	return o
}

// run reads manifests, makes a plan, carries it out and reports.
func (c *runCommand) run(ctx context.Context, args []string) error {
	c.outliveReaders()
	if !c.onCluster() {
		c.recordRun(c.root, args)
	}
	o := c.options()
	if err := o.Validate(); err != nil {
		return badInput(err)
	}
	if err := c.checkInteractive(args); err != nil {
		return err
	}
	if c.followFlags.wanted() && c.structured {
		return usagef("--follow-logs prints text: it has no meaning with --log-format %s", c.logging.logFormat)
	}
	c.display.Goal(o.Until)
	if err := c.openOutputs(); err != nil {
		return err
	}
	c.meter.measure(&o)
	defer c.copies.close()
	limited, cancel := o.WithTimeout(ctx) // for what comes before the pods
	defer cancel()
	t, err := c.openTarget(args, &o)
	if err != nil {
		return err
	}
	defer t.close()
	set, err := c.readInput(limited, t, args)
	if err != nil {
		return err
	}
	if err := cmp.Or(c.choose(set), c.followFlags.choose(set)); err != nil {
		return err
	}
	if o.Await, err = c.await(set); err != nil {
		return err
	}
	plan, err := t.prepare(limited, set)
	invalid := invalidResults(set) // some images may have been refused
	var results []runonce.Result
	switch {
	case err != nil && limited.Err() != nil:
		results = runonce.NotStarted(set.Pods, endedBy(limited, err), time.Since(o.Start))
	case err != nil:
		return err
	default:
		results = c.carryOut(ctx, t, plan, o, invalid)
	}
	results = append(results, invalid...)
	c.display.Results(results)
	return c.report(ctx, t, results, time.Since(o.Start))
}

// openOutputs refuses places that the run could not write to at its end.
func (c *runCommand) openOutputs() error {
	err := c.fileFlags.writable()
	if err != nil {
		return err
	}
	c.junit = c.junitFile
	if c.meter, err = c.metricsFlags.meter(c.onCluster()); err != nil {
		return err
	}
	if err := c.copies.open(c.logsTo); err != nil {
		return usagef("--logs-to: %w", err)
	}
	return nil
}

// openTarget returns where the pods run. The steps of their starts go to the trace of the options.
func (c *runCommand) openTarget(args []string, o *runonce.Options) (target, error) {
	o.Trace = &runonce.Trace{}
	c.planning = c.planOf(&c.podFlags, args, c.queue)
	engine := c.podFlags.engine(c.console)
	c.startFlags.setTo(&engine)
	var err error
	if !c.onCluster() {
		if engine.Journal, err = c.journal(c.console); err != nil {
			return nil, err
		}
	}
	machine := c.planner(engine, c.planning)
	machine.copies, machine.follows, machine.interacts, machine.trace, machine.remove = &c.copies, c.followFlags.wanted(), c.interactiveFlags.stdin, c.meter.traced(o.Trace.Record), c.removal()
	machine.run, machine.cleanup = c.last.ID(), c.cleanupArguments(&c.engineFlags, &c.pluginFlags)
	return c.target(&c.clusterFlags, machine, clusterOptions{
		namespace: c.podNamespace, createNamespace: c.createNamespace, scheduleTimeout: c.scheduleTimeout, remove: c.all,
		planning: c.planning, trace: o.Trace,
	})
}

// readInput reads the manifests, and leaves out the pods that are not chosen.
func (c *runCommand) readInput(ctx context.Context, t target, args []string) (*manifests.Set, error) {
	o, err := c.input(c.console)
	if err != nil {
		return nil, err
	}
	o.ClusterDomain = c.clusterDomain
	c.interactiveFlags.setTo(&o, c.console)
	t.input(&o)
	set, err := c.read(ctx, reading{args, o, c.skipInvalid, c.prune})
	if err != nil {
		return nil, err
	}
	return set, c.earlierFlags.choose(c.console, set, c.planning)
}

// carryOut runs the pods of a plan.
func (c *runCommand) carryOut(ctx context.Context, t target, plan admit.Plan, o runonce.Options, invalid []runonce.Result) []runonce.Result {
	o.Logs, o.Outputs, o.Events = t.logs(), c.junit != "", c.wantsEvents(c.output)
	t.complete(&o)
	shown, seen := c.followLogs(ctx, t, plan), c.interact(ctx, t)
	o.Concluded = func(results []runonce.Result) {
		seen(results)
		c.concluded(ctx, slices.Concat(results, invalid))
		c.copyLogs(ctx, results, t)
	}
	c.display.OnInterrupt(c.effect())
	results := runonce.Run(ctx, t.runtime(), plan, o)
	shown()
	seen(results)
	t.conclude(context.WithoutCancel(ctx))
	c.display.EndRun()
	return results
}

// effect returns what an interrupt does.
func (c *runCommand) effect() progress.Effect {
	switch {
	case c.removal() == runonce.RemoveNone:
		return progress.EffectReport
	case c.onCluster() || c.io.Program == "":
		return progress.EffectRemove
	}
	return progress.EffectHandOver
}

// concluded tells the service manager that the pods have reached their goal, if they have, and that
// the run removes them.
func (c *runCommand) concluded(ctx context.Context, results []runonce.Result) {
	if report.ExitCode(results, 0) == report.ExitOK && ctx.Err() == nil {
		c.display.Ready()
	}
	if c.removal() != runonce.RemoveNone {
		c.display.Stopping()
	}
}

// endedBy returns the error of a run that ended before it had a plan because ctx is done.
func endedBy(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// await returns the container that --exit-code-from waits for. It refuses one that no result will
// have, or that does not end.
func (c *runCommand) await(set *manifests.Set) (none runonce.Await, err error) {
	if c.exitCodeFrom == "" {
		return none, nil
	}
	pods := slices.Clone(set.Pods)
	for _, r := range invalidResults(set) {
		pods = append(pods, r.Pod)
	}
	pod, container, err := report.ExitCodeSource(pods, c.exitCodeFrom)
	if err != nil {
		return none, usagef("--exit-code-from: %w", err)
	}
	a := runonce.Await{Pod: podspec.NameOf(pod), Container: container}
	if err := a.Check(pod, c.maxRestarts); err != nil {
		return none, usagef("--exit-code-from: %w", err)
	}
	return a, nil
}

// report writes the results and returns an error with the exit code.
func (c *runCommand) report(ctx context.Context, t target, results []runonce.Result, elapsed time.Duration) error {
	code, codeErr := exitCode(ctx, results, c.exitCodeFrom, t.lost())
	r := reportOf(t, results, code, elapsed)
	c.keepReport(r, c.faults, true)
	err := errors.Join(
		c.writeResult(r),
		report.WriteFile(c.junit, r.JUnit),
		report.WriteFile(c.timelines, r.Timeline),
		report.WriteFile(c.portsTo, r.PortVariables),
		codeErr, c.copies.err, c.unseen,
	)
	if err != nil && code == report.ExitOK {
		code = report.ExitFailed
	}
	c.meter.concluded(results, code, elapsed)
	if werr := c.meter.write(); werr != nil {
		code, err = max(code, report.ExitFailed), errors.Join(err, werr)
	}
	return exitWith(code, err)
}

// reportOf returns the report on pods of the target.
func reportOf(t target, results []runonce.Result, code int, elapsed time.Duration) report.Report {
	r := report.New(results, code, elapsed)
	r.Runtime = t.ociRuntime()
	return r
}

// writeResult writes the report. If standard output is that of a container, it goes to standard error, unless all that
// happened was seen there.
func (c *runCommand) writeResult(r report.Report) error {
	switch {
	case c.interaction == nil:
		return c.writeReport(c.output, r, c.faults)
	case c.seen:
		return nil
	}
	return r.Table(c.io.Stderr, report.Style{Color: c.colorsOn(c.io.StderrTerminal)})
}

func (c *runCommand) fail(r report.Report) error {
	c.meter.ended(r.ExitCode, time.Since(c.start))
	return errors.Join(report.WriteFile(c.junit, r.JUnit), c.meter.write(), c.writeFailedReport(c.output, r, c.faults))
}

// exitCode returns the exit code for the results, and an error that they do not tell: that the
// target was lost, or that the container of --exit-code-from has no exit code.
func exitCode(ctx context.Context, results []runonce.Result, from string, lost error) (int, error) {
	var interrupt Interrupt
	errors.As(context.Cause(ctx), &interrupt)
	code := report.ExitCode(results, interrupt.Signal)
	switch {
	case code >= report.ExitSignal(syscall.SIGHUP):
		return code, nil
	case lost != nil:
		return report.ExitEngine, lost
	case from == "":
		return code, nil
	}
	own, err := report.ExitCodeFrom(results, from)
	switch {
	case err == nil:
		return own, nil
	case code == report.ExitOK:
		return report.ExitFailed, err
	}
	return code, nil
}

// invalidResults returns a result for each manifest that was skipped.
func invalidResults(set *manifests.Set) []runonce.Result {
	results := make([]runonce.Result, 0, len(set.Invalid))
	for _, in := range set.Invalid {
		pod := &v1.Pod{}
		pod.Namespace, pod.Name = in.Namespace, in.Name
		pod.Annotations = map[string]string{podspec.AnnotationSource: fmt.Sprintf("%s:%d", in.File, in.Line)}
		if in.Optional {
			pod.Annotations[podspec.AnnotationOptional] = "true"
		}
		results = append(results, runonce.Result{
			Pod: pod, Outcome: runonce.Invalid, Reason: "Invalid", Message: in.Problems.Error(),
			Status: v1.PodStatus{Phase: v1.PodPending},
		})
	}
	return results
}
