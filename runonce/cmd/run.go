package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/cluster"
)

const (
	// defaultSettle is long enough to notice most programs that cannot do their work.
	defaultSettle = 3 * time.Second
	// defaultPulls is how many images are pulled at once; containerd downloads several layers
	// of each at the same time.
	defaultPulls = 4
)

func (p *program) runCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "until", Category: categoryRun, Value: "running", Usage: "wait for this `GOAL`: running, ready or completed"},
		&cli.IntFlag{Name: "max-restarts", Category: categoryRun, Value: runonce.DefaultMaxRestarts, Usage: "restart a container up to `N` times after crashes"},
		&cli.DurationFlag{Name: "timeout", Category: categoryRun, Usage: "end the run, including --rm, after this `DURATION`", DefaultText: "no limit"},
		&cli.DurationFlag{Name: "settle", Category: categoryRun, Value: defaultSettle, Usage: "count a container as running after this `DURATION`"},
		&cli.IntFlag{Name: "parallel", Category: categoryRun, Usage: "start up to `N` pods at once", DefaultText: "twice the processors"},
		boolFlag(categoryRun, "end the run when the first pod has failed", "fail-fast"),
		boolFlag(categoryRun, "remove the started pods at the end of the run", "rm"),
		&cli.StringFlag{Name: "claims-dir", Category: categoryEngine, Usage: "keep the data of claims in `DIR`/NAMESPACE/CLAIM", DefaultText: "claims in --root"},
		&cli.StringFlag{Name: "exit-code-from", Category: categoryReport, Usage: "exit with the exit code of `POD[/CONTAINER]`"},
		&cli.StringFlag{Name: "junit", Category: categoryReport, Usage: "write a JUnit report to `FILE`"},
		&cli.StringFlag{Name: "logs-to", Category: categoryReport, Usage: "write the log of each container to a file in `DIR`"},
		&cli.StringFlag{Name: "timeline", Category: categoryReport, Usage: "write an SVG timeline to `FILE`"},
		&cli.StringFlag{Name: "cgroup-driver", Category: categoryRun, Value: cgroup.DriverCgroupfs, Usage: "manage cgroups with `DRIVER`: cgroupfs or systemd"},
		&cli.Int64Flag{Name: "pod-pids-limit", Category: categoryRun, Value: -1, Usage: "limit each pod to `N` processes, -1 for no limit"},
		&cli.StringFlag{Name: "container-logs", Category: categoryRun, Value: "files", Usage: "log containers to `PLACE`: files, or journal for both"},
		securityFlag(),
		quietFlag(),
		outputFlag("table", "wide", "json", "yaml", formatGitHub),
		parallelPullsFlag(),
	}
	return &cli.Command{
		Name: "run", Usage: "run the pods of manifests and wait until they reach their goal",
		ArgsUsage: "PATH...", Action: p.run,
		Description: "PATH is a directory, a file, a URL, or - for standard input.",
		Flags:       slices.Concat(flags, retryFlags(), imageFlags(), nodeFlags(), networkFlags(), planFlags(), inputFlags(), engineFlags(), clusterFlags(), creationFlags()),
	}
}

// run reads manifests, makes a plan, carries it out and reports.
func (p *program) run(c *cli.Context) error {
	p.outliveReaders()
	o, err := runOptions(c)
	if err != nil {
		return err
	}
	o.Start, o.Logger, o.Progress = time.Now(), p.log, p.display.Pod
	p.display.Goal(o.Until)
	if err := p.openOutputs(c); err != nil {
		return err
	}
	defer p.copies.close()
	ctx, cancel := o.WithTimeout(c.Context)
	defer cancel()
	limited := *c // for what comes before the pods
	limited.Context = ctx
	if p.cluster != nil && o.Settle > 0 {
		o.Settle += cluster.StatusDelay
	}
	set, err := p.read(&limited)
	if err != nil {
		return err
	}
	invalid := invalidResults(set)
	if err := checkExitCodeFrom(c, set.Pods, invalid); err != nil {
		return err
	}
	l, plan, err := p.prepare(&limited, set)
	defer l.close()
	invalid = invalidResults(set)
	var results []runonce.Result
	switch {
	case err != nil && ctx.Err() != nil:
		results = runonce.NotStarted(set.Pods, endedBy(ctx, err), time.Since(o.Start))
	case err != nil:
		return err
	default:
		// The next run may plan when the pods that this one stops have stopped.
		o.Logs, o.Outputs, o.Trace, o.AfterStops = l.logs, p.junit != "", &l.trace, l.afterStops
		o.Concluded = func(results []runonce.Result) {
			p.concluded(c.Context, slices.Concat(results, invalid), o.Remove)
			p.copyLogs(c.Context, results, l)
		}
		p.display.OnInterrupt(progress.EffectReport)
		if o.Remove {
			p.display.OnInterrupt(progress.EffectRemove)
		}
		process.DropCode() // what reading, admission and opening the engine have used
		results = runonce.Run(c.Context, l.runtime, plan, o)
		if err := l.finish(context.WithoutCancel(c.Context)); err != nil {
			p.log.Warn("something is left of the run", "error", err)
		}
		p.display.EndRun()
	}
	results = append(results, invalid...)
	p.display.Results(results)
	return p.report(c, results, time.Since(o.Start), l.lost())
}

// openOutputs refuses places that the run could not write to at its end.
func (p *program) openOutputs(c *cli.Context) (err error) {
	if _, err := p.containerJournal(c); err != nil {
		return err
	}
	for _, flag := range []string{"junit", "timeline"} {
		if err := report.Writable(c.String(flag)); err != nil {
			return usagef("--%s: %w", flag, err)
		}
	}
	p.junit = c.String("junit")
	if p.copies, err = openLogCopies(c.String("logs-to")); err != nil {
		return usagef("--logs-to: %w", err)
	}
	return nil
}

// concluded tells the service manager that the pods have reached their goal, if they have, and that
// the run removes them.
func (p *program) concluded(ctx context.Context, results []runonce.Result, remove bool) {
	if report.ExitCode(results, 0) == report.ExitOK && ctx.Err() == nil {
		p.display.Ready()
	}
	if remove {
		p.display.Stopping()
	}
}

// launch is what a run runs its pods with.
type launch struct {
	runtime    runonce.Runtime
	logs       runonce.Logs
	trace      runonce.Trace
	afterStops func()                           // when all pods have stopped that the plan stops
	finish     func(context.Context) error      // when the results are known
	instances  func(*runonce.Result) []instance // of the containers of a pod, for their logs
	lost       func() error                     // why the pods are not known any more
	close      func()
}

// prepare makes the plan, for the cluster or for this machine. The caller closes the launch, also
// after an error.
func (p *program) prepare(c *cli.Context, set *manifests.Set) (*launch, admit.Plan, error) {
	l := &launch{close: func() {}, afterStops: func() {}, finish: func(context.Context) error { return nil }, lost: func() error { return nil }}
	var plan admit.Plan
	var err error
	if p.cluster != nil {
		plan, err = p.prepareCluster(c, set, l)
	} else {
		plan, err = p.prepareNode(c, set, l)
	}
	return l, plan, err
}

// prepareNode opens the engine and makes the plan, when it is this run's turn.
func (p *program) prepareNode(c *cli.Context, set *manifests.Set, l *launch) (admit.Plan, error) {
	s, err := p.openNode(c, set, runtime.Options{Objects: set, Trace: l.trace.Record})
	if err != nil {
		return admit.Plan{}, err
	}
	l.instances = p.copies.ofNode
	l.runtime, l.logs, l.close, l.afterStops = s.pods, podLogs{s.pods}, s.close, func() { s.warn(s.run.Leave()) }
	if err := p.settleImages(c, set, s); err != nil {
		return admit.Plan{}, err
	}
	if err := p.enter(c.Context, s.run); err != nil {
		return admit.Plan{}, err
	}
	return p.reserve(c, set, s)
}

// endedBy returns the error of a run that ended before it had a plan because ctx is done.
func endedBy(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// checkExitCodeFrom refuses an --exit-code-from that no result will have.
func checkExitCodeFrom(c *cli.Context, pods []*v1.Pod, invalid []runonce.Result) error {
	from := c.String("exit-code-from")
	if from == "" {
		return nil
	}
	pods = slices.Clone(pods)
	for _, r := range invalid {
		pods = append(pods, r.Pod)
	}
	if err := report.CheckExitCodeFrom(pods, from); err != nil {
		return usagef("--exit-code-from: %w", err)
	}
	return nil
}

// reserve makes the plan and reserves the resources of its pods, while no other run plans.
func (p *program) reserve(c *cli.Context, set *manifests.Set, s *session) (admit.Plan, error) {
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
	// Now, since no other run plans: what has no record is gone.
	if err := s.pods.ExpireLogs(); err != nil {
		p.log.Warn("cannot remove old logs", "error", err)
	}
	return plan, nil
}

// exitCode returns the exit code for the results, and an error that they do not tell: that the
// runtime was lost, or that the container of --exit-code-from has no exit code.
func exitCode(c *cli.Context, results []runonce.Result, lost error) (int, error) {
	var interrupt Interrupt
	errors.As(context.Cause(c.Context), &interrupt)
	code := report.ExitCode(results, interrupt.Signal)
	from := c.String("exit-code-from")
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

// report writes the results and returns an error with the exit code. lost says why the runtime could
// not be used to the end.
func (p *program) report(c *cli.Context, results []runonce.Result, elapsed time.Duration, lost error) error {
	code, codeErr := exitCode(c, results, lost)
	r := report.New(results, code, elapsed)
	err := errors.Join(
		p.writeReport(c, r, p.faults),
		report.WriteFile(p.junit, r.JUnit),
		report.WriteFile(c.String("timeline"), r.Timeline),
		codeErr, p.copies.err,
	)
	if err != nil && code == report.ExitOK {
		code = report.ExitFailed
	}
	return exitWith(code, err)
}

// read reads the manifests of the arguments.
func (p *program) read(c *cli.Context) (*manifests.Set, error) {
	args, err := paths(c)
	if err != nil {
		return nil, err
	}
	end := p.display.Wait("reading the manifests")
	set, err := manifests.ReadPaths(c.Context, args, p.inputOptions(c))
	end()
	p.printProblems(set.Warnings)
	p.faults = slices.Clip(set.Warnings)
	switch {
	case context.Cause(c.Context) != nil:
		return nil, fmt.Errorf("reading the manifests: %w", context.Cause(c.Context))
	case err != nil && (!c.Bool("skip-invalid") || len(set.Pods) == 0):
		return nil, badInput(err)
	case len(set.Pods) == 0 && !prunesAll(c):
		return nil, noPod(c)
	}
	for _, in := range set.Invalid {
		p.faults = append(p.faults, in.Problems...)
	}
	return set, nil
}

// prunesAll says whether input without pods is meant to stop all pods that came from there: with
// --prune, and if the arguments are directories. Empty standard input is more likely a mistake.
func prunesAll(c *cli.Context) bool {
	return c.Bool("prune") && !slices.ContainsFunc(c.Args().Slice(), func(arg string) bool {
		info, err := os.Stat(arg)
		return err != nil || !info.IsDir()
	})
}

func noPod(c *cli.Context) error { return usagef("no pod in %s", strings.Join(c.Args().Slice(), ", ")) }

// invalidResults returns a result for each manifest that was skipped.
func invalidResults(set *manifests.Set) []runonce.Result {
	results := make([]runonce.Result, 0, len(set.Invalid))
	for _, in := range set.Invalid {
		pod := &v1.Pod{}
		pod.Namespace, pod.Name = in.Namespace, in.Name
		pod.Annotations = map[string]string{podspec.AnnotationSource: fmt.Sprintf("%s:%d", in.File, in.Line)}
		results = append(results, runonce.Result{
			Pod: pod, Outcome: runonce.Invalid, Reason: "Invalid", Message: in.Problems.Error(),
			Status: v1.PodStatus{Phase: v1.PodPending},
		})
	}
	return results
}

// decide makes the plan.
func (p *program) decide(c *cli.Context, set *manifests.Set, s *session) (admit.Plan, error) {
	// The reservations come first: pods that start meanwhile are among the running ones.
	reserved, err := s.run.Reserved()
	if err != nil {
		return admit.Plan{}, unusable(err)
	}
	running, err := s.list(c.Context)
	if err != nil {
		return admit.Plan{}, err
	}
	o, err := p.admitOptions(c, set, true)
	if err != nil {
		return admit.Plan{}, err
	}
	if o.Listening, err = p.listeners(c, set.Pods, running); err != nil {
		return admit.Plan{}, err
	}
	o.Reserved = reserved
	o.MissingFeatures = s.engine.Unsupported(c.Context, set.Pods)
	plan := admit.Decide(s.node, running, set.Pods, o)
	if err := s.engine.Check(toStart(plan, running)); err != nil {
		return plan, unusable(err)
	}
	return plan, nil
}

// toStart returns the pods that are to run, except those that have ended in an earlier run.
func toStart(plan admit.Plan, running []*v1.Pod) []*v1.Pod {
	over := map[types.UID]bool{}
	for _, pod := range running {
		over[pod.UID] = podspec.Ended(pod.Status.Phase)
	}
	var pods []*v1.Pod
	for _, d := range plan.Decisions {
		if d.Verdict == admit.Admitted && !d.Prune && !(d.Running && over[d.Pod.UID]) {
			pods = append(pods, d.Pod)
		}
	}
	return pods
}
