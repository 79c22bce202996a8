package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/logdir"
	"github.com/runonce/runonce/runonce/cmd/network"
	"github.com/runonce/runonce/runonce/cmd/node"
	"github.com/runonce/runonce/runonce/exitcode"
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
		&cli.StringFlag{Name: "cgroup-driver", Category: categoryRun, Value: cgroup.DriverFiles, Usage: "what makes the cgroups of new pods: `cgroupfs|systemd`"},
		&cli.Int64Flag{Name: "pod-pids-limit", Category: categoryRun, Value: -1, Usage: "`N` processes in a pod at most (-1: no limit)"},
		securityFlag(),
		outputFlag("table, wide, json or yaml"),
	}
	return &cli.Command{
		Name: "run", Usage: "run the pods of manifests, and wait until they are at their goal",
		ArgsUsage: "PATH...", Before: p.before, Action: p.run,
		Description: "PATH is a directory, a file, or - for standard input.",
		Flags:       slices.Concat(flags, node.Flags(), network.Flags(), planFlags(), inputFlags(), engineFlags()),
	}
}

// run is the way through the house: read, decide, run, report.
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
			return exitcode.Usagef("--%s: %w", flag, err)
		}
	}
	set, err := p.read(c)
	if err != nil {
		return err
	}
	s, err := p.open(c, set)
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
	o.Phases, o.Logs, o.Annotations = s.phases, logdir.Dir(c.String("log-dir")), s.pods.Annotations
	o.Cleared = func() { s.note(s.run.Leave()) }
	results := runonce.Run(c.Context, s.pods, plan, o)
	results = append(results, invalid(set)...)
	return p.report(c, format, results, time.Since(start))
}

// claim waits for this run's turn to plan, makes the plan, and books the room of its pods.
// Its turn lasts until what has to go has gone.
func (p *program) claim(c *cli.Context, set *manifests.Set, s *session, start time.Time) (admit.Plan, error) {
	if err := enter(c, s.run, start); err != nil {
		return admit.Plan{}, err
	}
	plan, err := p.decide(c, set, s)
	if err != nil {
		return plan, err
	}
	if err := s.run.Book(plan.Admitted()); err != nil {
		return plan, exitcode.Unusable(err)
	}
	for _, d := range plan.Departures() {
		if err := s.run.Take(d.Pod, d.By); err != nil {
			return plan, exitcode.Unusable(err)
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
		return exitcode.Unusable(err)
	}
	return nil
}

// report writes the results wherever they are asked for and maps them to the exit code.
func (p *program) report(c *cli.Context, format string, results []runonce.Result, elapsed time.Duration) error {
	var interrupt Interrupt
	errors.As(context.Cause(c.Context), &interrupt)
	code := exitcode.Of(results, interrupt.Signal)
	var asked error
	if from := c.String("exit-code-from"); from != "" && code < exitcode.Signal(syscall.SIGHUP) {
		own, err := exitcode.From(results, from)
		if err == nil {
			code = own
		} else if code == exitcode.OK {
			code, asked = exitcode.Failed, err
		}
	}
	r := report.New(results, code, elapsed)
	err := errors.Join(
		p.write(format, r, func(s report.Style) error { return r.Table(p.io.Stdout, s) }),
		report.WriteFile(c.String("junit"), r.JUnit),
		report.WriteFile(c.String("timeline"), r.Timeline),
		asked,
	)
	if err != nil && code == exitcode.OK {
		code = exitcode.Failed
	}
	return exitcode.As(code, err)
}

// read reads the manifests that the arguments name.
func (p *program) read(c *cli.Context) (*manifests.Set, error) {
	if c.Args().Len() == 0 {
		return nil, exitcode.Usagef("no PATH given: name a directory of pod manifests, a file, or - for standard input")
	}
	set, err := manifests.ReadPaths(c.Context, c.Args().Slice(), p.inputOptions(c))
	for _, w := range set.Warnings {
		p.log.Warn(w.String())
	}
	switch {
	case context.Cause(c.Context) != nil:
		return nil, context.Cause(c.Context)
	case err != nil && (!c.Bool("skip-invalid") || len(set.Pods) == 0):
		return nil, exitcode.BadInput(err)
	case len(set.Pods) == 0:
		return nil, exitcode.Usagef("no pod in %s", list(c.Args().Slice()))
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

// machine is where the node is read from.
func (p *program) machine(c *cli.Context) node.Source {
	devices, faults, err := node.Devices(c)
	for _, fault := range append(faults, err) {
		if fault != nil {
			p.log.Warn("devices that cannot be used", "error", fault)
		}
	}
	return node.Source{Machine: p.io.Machine, Stdin: p.io.Stdin, Devices: devices}
}

// session is an engine at work for one command.
type session struct {
	backend backend.Backend
	pods    backend.Pods
	node    *v1.Node
	phases  *runonce.Phases
	run     *record.Run
	cancel  context.CancelFunc // ends the work of pods
	log     *slog.Logger
}

// open opens the engine for a run: it imports images and detects the node.
func (p *program) open(c *cli.Context, set *manifests.Set) (*session, error) {
	machine := p.machine(c)
	node, err := machine.Node(c, set)
	if err != nil {
		return nil, err
	}
	s, err := p.connect(c, backend.PodsOptions{
		Objects: set, Node: node, Devices: machine.Devices, PodPidsLimit: c.Int64("pod-pids-limit"), CgroupDriver: c.String("cgroup-driver"),
	})
	if err != nil {
		return nil, err
	}
	s.node = node
	return s, nil
}

// connect opens the engine and the runtime on it, with the images of --images-dir.
func (p *program) connect(c *cli.Context, o backend.PodsOptions) (*session, error) {
	var err error
	if o.Network, err = network.Options(c); err != nil {
		return nil, err
	}
	b, place, err := p.engine(c)
	if err != nil {
		return nil, err
	}
	// What the runtime does in the background has to outlast an interruption, since pods
	// may have to be removed then.
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.Context))
	o.Records = record.Open(place.Root, place.State)
	s := &session{backend: b, phases: &runonce.Phases{}, run: o.Records.NewRun(), cancel: cancel, log: p.log}
	o.Trace = s.phases.Record
	if dir := c.String("images-dir"); dir != "" {
		begin := time.Now()
		if o.LocalImages, err = b.Import(c.Context, dir); err != nil {
			s.close()
			return nil, exitcode.BadInput(fmt.Errorf("--images-dir: %w", err))
		}
		p.log.Info("images are there", "images", o.LocalImages, "elapsed", time.Since(begin))
	}
	if s.pods, err = b.Pods(ctx, o); err != nil {
		s.close()
		return nil, exitcode.Unusable(fmt.Errorf("container engine: %w", err))
	}
	return s, nil
}

func (s *session) close() {
	s.note(s.run.Close())
	s.cancel()
	if err := s.backend.Close(); err != nil {
		s.log.Warn("closing the engine", "error", err)
	}
}

// note tells of an error that keeps nothing from going on.
func (s *session) note(err error) {
	if err != nil {
		s.log.Warn("telling other runs", "error", err)
	}
}

// decide makes the plan.
func (p *program) decide(c *cli.Context, set *manifests.Set, s *session) (admit.Plan, error) {
	// First the bookings: what is started meanwhile is found among the running pods.
	booked, err := s.run.Booked()
	if err != nil {
		return admit.Plan{}, exitcode.Unusable(err)
	}
	running, err := s.pods.List(c.Context)
	if err != nil {
		return admit.Plan{}, exitcode.Unusable(fmt.Errorf("looking for pods of earlier runs: %w", err))
	}
	o, err := node.Source{Machine: p.io.Machine}.AdmitOptions(c, set, true)
	if err != nil {
		return admit.Plan{}, err
	}
	o.Booked = booked
	o.Unable = s.pods.Unable(c.Context, set.Pods)
	return admit.Decide(s.node, running, set.Pods, o), nil
}
