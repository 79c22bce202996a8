package cmd

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/record"
)

// stopSlack is how much longer than its grace period a pod may take to stop.
const stopSlack = time.Minute

// watchCommand is "watch": it keeps the pods of manifests running.
type watchCommand struct {
	*program
	podFlags
	startFlags
	outputFlags
	clusterFlags // to refuse them
	queueFlags   // likewise, on the command line
	metricsFlags
	serveFlags
	rollbackFlags
	imageWatchFlags
	acceptor
	queueGiven  bool
	maxRestarts int
	stopPods    bool

	reading reading
	options runonce.Options
	target  *nodeTarget
	objects currentObjects
	current admit.Plan
	invalid []runonce.Result
	faulty  bool // the manifests had errors when they were last read
	meter   *meter
	files   *watcher
	// rollbacks know which definitions of pods have failed.
	rollbacks *rollbacks
	newest    *imageWatch
	begun     time.Time // when the manifests of the plan were read
}

func (p *program) watchCommand() *cli.Command {
	c := &watchCommand{
		program: p, outputFlags: newOutputFlags("table", "wide", "json", "yaml", formatGitHub),
		serveFlags: serveFlags{flag: "serve", usage: "serve the pods on `ADDRESS`, as \"runonce serve\" does", preset: "none"},
	}
	return p.command(cli.Command{
		Name: "watch", Usage: "run the pods of manifests, keep them running and apply changes to the manifests", ArgsUsage: "PATH...",
		Description: "PATH is a directory, a file or a URL. SIGHUP reads all of them again. SIGTERM and SIGINT end the\n" +
			"command and leave the pods running.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "max-restarts", Destination: &c.maxRestarts, Value: notGiven, Category: categoryRun, Usage: "restart a container up to `N` times after crashes", DefaultText: "no limit"},
			boolFlag(&c.stopPods, categoryRun, "stop the pods at the end", "stop-pods"),
			boolFlag(&c.accepts, categoryServe, "with --serve, run the pods that clients create as well", "accept"),
			p.quietFlag(),
		},
	}, c, &c.podFlags, &c.startFlags, &c.outputFlags, hidden{&c.clusterFlags}, hidden{&c.queueFlags}, &c.metricsFlags, &c.serveFlags, &c.rollbackFlags, &c.imageWatchFlags)
}

// currentObjects are those of the manifests that were read last.
type currentObjects struct {
	set atomic.Pointer[manifests.Set]
	// former has the manifests of the pods, by UID, whose former definition runs.
	former atomic.Pointer[map[types.UID]*manifests.Set]
}

// Of returns the objects to which the pod refers, for podspec.ObjectsOf.
func (o *currentObjects) Of(pod *v1.Pod) podspec.Objects {
	if all := o.former.Load(); all != nil && (*all)[pod.UID] != nil {
		return (*all)[pod.UID]
	}
	return o.set.Load()
}

func (o *currentObjects) ConfigMap(namespace, name string) (*v1.ConfigMap, bool) {
	return o.set.Load().ConfigMap(namespace, name)
}

func (o *currentObjects) Secret(namespace, name string) (*v1.Secret, bool) {
	return o.set.Load().Secret(namespace, name)
}

func (o *currentObjects) Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	return o.set.Load().Claim(namespace, name)
}

func (o *currentObjects) PersistentVolume(name string) (*v1.PersistentVolume, bool) {
	return o.set.Load().PersistentVolume(name)
}

// noteGiven: what the configuration says of the queue and of a deadline is about run.
func (c *watchCommand) noteGiven() { c.queueGiven, c.limit = c.queue, c.timeout }

// refuse refuses what means nothing for a watch.
func (c *watchCommand) refuse(args []string) error {
	switch {
	case c.onCluster():
		return usagef("watch runs pods on this machine only: on a cluster, a Deployment keeps pods running")
	case c.queueGiven:
		return usagef("watch: --queue needs pods that end, and watch keeps pods running: use run")
	case slices.Contains(args, "-"):
		return usagef("watch: standard input can only be read once: use run")
	case c.accepts && c.serveFlags.address == "":
		return usagef("--accept runs the pods that clients create: it needs --serve, where they do")
	}
	return c.imageWatchFlags.checkFor(&c.imageFlags)
}

// run runs the pods, and goes on until it is interrupted.
func (c *watchCommand) run(ctx context.Context, args []string) error {
	c.outliveReaders()
	if err := c.refuse(args); err != nil {
		return err
	}
	c.recordRun(c.root, args)
	args, err := c.acceptor.open(c.root, args)
	if err != nil {
		return err
	}
	c.options = c.startFlags.options(c.console, c.backoff)
	if c.maxRestarts != notGiven {
		c.options.MaxRestarts = &c.maxRestarts
	}
	if err := c.options.Validate(); err != nil {
		return badInput(err)
	}
	if c.meter, err = c.metricsFlags.meter(false); err != nil {
		return err
	}
	c.meter.measure(&c.options)
	c.begun, c.rollbacks, c.newest = c.options.Start, newRollbacks(c.limit), c.imageWatch()
	if c.rollback {
		c.options.Progress = c.follow(c.options.Progress)
	}
	defer c.meter.keep(ctx, func(err error) { c.log.Warn("could not write the metrics", "error", err) })()
	c.display.Goal(c.options.Until)
	c.display.Service()
	input, err := c.input(c.console)
	if err != nil {
		return err
	}
	input.ClusterDomain = c.clusterDomain
	c.reading = reading{args, input, c.skipInvalid, true} // when all pods have gone from a directory, they are stopped
	c.watchFiles(ctx)
	set, err := c.read(ctx, c.reading)
	if err != nil {
		return err
	}
	c.faulty = len(set.Invalid) > 0
	if err := c.openTarget(); err != nil {
		return err
	}
	defer c.target.close()
	if err := c.begin(ctx, set); err != nil {
		return err
	}
	ended, err := c.serve(ctx)
	if err != nil {
		return err
	}
	defer ended()
	defer c.watchImages(ctx)()
	return c.keep(ctx)
}

// serve has the pods served in the background until the returned function is called, if that is wanted.
func (c *watchCommand) serve(ctx context.Context) (end func(), err error) {
	if c.serveFlags.address == "" {
		return func() {}, nil
	}
	run, err := c.listen(ctx, c.target, c.target.node, &c.acceptor)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // as long as there are pods to see
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := run(ctx); err != nil {
			c.log.Error("the pods are not served any more", "error", err)
		}
	})
	return func() {
		cancel()
		serving.Wait()
	}, nil
}

// watchFiles notices when the files have changed, or SIGHUP has come.
func (c *watchCommand) watchFiles(ctx context.Context) {
	var paths []string
	for _, arg := range c.reading.paths {
		if origin := manifests.Origin(arg); filepath.IsAbs(origin) {
			paths = append(paths, origin)
		}
	}
	w := newWatcher(paths, c.recursive, func() string { return manifests.Fingerprint(ctx, c.reading.paths, c.reading.options) })
	w.hangups = c.hangups
	if c.io.Inotify != nil {
		w.inotify = c.io.Inotify
	}
	if err := w.start(ctx); err != nil {
		c.log.Warn("could not watch the manifests; checking for changes every 20 seconds", "error", err)
	}
	c.reloads.Store(true)
	if c.io.CatchHangups != nil {
		c.io.CatchHangups() // it ends nothing here
	}
	c.files = w
}

// openTarget says how this machine runs the pods.
func (c *watchCommand) openTarget() (err error) {
	engine := c.podFlags.engine(c.console)
	c.startFlags.setTo(&engine)
	if engine.Journal, err = c.journal(c.console); err != nil {
		return err
	}
	c.target = c.planner(engine, &planning{flags: &c.podFlags, scope: scope{c.reading.paths, c.recursive, true}, once: c.acceptor.has})
	c.target.trace = c.meter.traced(nil)
	return nil
}

// begin opens the engine and makes the first plan.
func (c *watchCommand) begin(ctx context.Context, set *manifests.Set) error {
	c.objects.set.Store(set)
	if err := c.target.openFor(ctx, set, &c.objects); err != nil {
		return err
	}
	c.options.Logs, c.options.Events = c.target.logs(), c.wantsEvents(c.output)
	if err := c.learn(ctx, set); err != nil {
		return err
	}
	if err := c.awaitTurn(ctx, set, c.target.owner); err != nil {
		return err
	}
	return c.replan(ctx, set)
}

// awaitTurn does what comes before a plan for the manifests, and waits for the turn of the run to make it.
func (c *watchCommand) awaitTurn(ctx context.Context, set *manifests.Set, run *record.Run) error {
	if err := c.target.settleImages(ctx, set); err != nil {
		return err
	}
	c.lookForImages(ctx, set)
	return c.target.enter(ctx, run)
}

// keep carries out one plan after the other until the command is interrupted.
func (c *watchCommand) keep(ctx context.Context) error {
	c.display.OnInterrupt(progress.EffectLeave)
	if c.stopPods {
		c.display.OnInterrupt(progress.EffectStop)
	}
	for {
		over, done := make(chan struct{}), make(chan []runonce.Result, 1)
		o, plan, invalid := c.options, c.current, c.invalid
		c.target.complete(&o)
		o.Keep, o.Seen = over, c.begun
		o.Concluded = c.concluded(invalid)
		go func() { done <- append(runonce.Run(ctx, c.target.pods, plan, o), invalid...) }()
		var next *change
		for next == nil {
			select {
			case results := <-done:
				return c.end(ctx, results)
			case <-c.files.changed:
				next = c.reload(ctx)
			case a := <-c.asked:
				next = c.accept(ctx, a)
			case <-c.rollbacks.due:
				next = c.again(ctx)
			case changes := <-c.newest.found:
				c.noticeImages(changes)
				next = c.again(ctx)
			}
		}
		close(over)
		if results := <-done; ctx.Err() != nil {
			c.target.warn(next.run.Close())
			next.answer(c.current, context.Cause(ctx))
			return c.end(ctx, results)
		}
		err := c.apply(ctx, next)
		next.answer(c.current, err)
	}
}

// change is what a reload has found, whose run has its turn to plan.
type change struct {
	set   *manifests.Set
	node  *v1.Node
	run   *record.Run
	begun time.Time
	// asked is the pod for which it was made, nil for changes of files.
	asked *acceptance
}

// reload reads the manifests and --images-dir again and waits for the turn to make a plan. The run
// before goes on meanwhile. What is invalid changes nothing, and nil is returned.
func (c *watchCommand) reload(ctx context.Context) *change {
	c.log.Info("reading the manifests again")
	if c.files.hungUp.Swap(false) {
		c.rollbacks.retry()
		c.newest.stale.Store(true)
	}
	set, err := c.read(ctx, c.reading)
	c.noticeValid(err != nil || len(set.Invalid) > 0)
	var next *change
	if err == nil {
		next, err = c.prepare(ctx, set)
	}
	if err != nil {
		c.printUnchanged(ctx, err)
		return nil
	}
	return next
}

// prepare waits for the turn to make a plan of the manifests.
func (c *watchCommand) prepare(ctx context.Context, set *manifests.Set) (*change, error) {
	next := &change{set: set, run: c.target.records.NewRun(), begun: time.Now()}
	err := c.target.importImages(ctx) // new manifests may come with their images
	if err == nil {
		next.node, err = c.node(ctx, &c.podFlags, next.set, c.devices(c.cdiDirs.values))
	}
	if err == nil {
		err = c.awaitTurn(ctx, next.set, next.run)
	}
	return next, err
}

// apply makes a plan of the change. If that fails, the plan before goes on, and the error says why.
func (c *watchCommand) apply(ctx context.Context, next *change) error {
	before := c.target.owner
	c.target.owner, c.target.node = next.run, next.node
	if err := c.replan(ctx, next.set); err != nil {
		c.target.owner = before
		c.target.warn(next.run.Abandon())
		c.current = c.current.Standing()
		c.printUnchanged(ctx, err)
		return err
	}
	c.objects.set.Store(next.set)
	c.begun = next.begun
	c.target.warn(before.Close())
	return nil
}

// printUnchanged prints why a change is not applied, unless the command was interrupted.
func (c *watchCommand) printUnchanged(ctx context.Context, err error) {
	if ctx.Err() == nil {
		c.printError(unchanged(err))
	}
}

// noticeValid says that the manifests are valid again, if they are now and were not before.
func (c *watchCommand) noticeValid(faulty bool) {
	if c.faulty && !faulty {
		c.notice("the manifests are valid again")
	}
	c.faulty = faulty
}

// unchanged is the error of manifests that are not applied.
func unchanged(err error) error {
	const result = "the pods are left as they are"
	var problems manifests.Diagnostics
	if errors.As(err, &problems) {
		return &inputError{problems: problems, result: result}
	}
	return errors.Join(err, errors.New(result))
}

// concluded returns what is called when the pods of a plan have reached their goal or have ended. The
// results of the first one are reported; of later ones, what their progress has not said.
func (c *watchCommand) concluded(invalid []runonce.Result) func([]runonce.Result) {
	faults, begun := c.faults, c.begun // the manifests may be read again meanwhile
	return func(results []runonce.Result) {
		results = append(slices.Clone(results), invalid...)
		if slices.ContainsFunc(results, func(r runonce.Result) bool { return r.IsInterrupted() }) {
			return // interrupted, or there is another plan
		}
		if c.rollbacks.areDue(results) {
			return // there will be one
		}
		code := report.ExitCode(results, 0)
		if code == report.ExitOK {
			c.display.Ready()
		}
		c.meter.concluded(results, code, time.Since(begun))
		r := reportOf(c.target, results, code, time.Since(c.options.Start))
		c.keepReport(r, faults, false)
		if c.reported {
			c.warnRefused(results)
			return
		}
		if err := c.writeReport(c.output, r, faults); err != nil {
			c.printError(err)
		}
	}
}

// warnRefused logs which pods the plan does not run.
func (c *watchCommand) warnRefused(results []runonce.Result) {
	for _, r := range results {
		if r.Outcome == runonce.Rejected || r.Outcome == runonce.Preempted {
			c.log.Warn("the pod will not run", "pod", podspec.FullName(r.Pod), "outcome", r.Outcome, "reason", r.Reason, "error", r.Message)
		}
	}
}

// end stops the pods, if they are to be stopped, and returns the error with the exit code for the
// last results.
func (c *watchCommand) end(ctx context.Context, results []runonce.Result) error {
	var err error
	if c.stopPods {
		pods := c.current.Admitted()
		errs := c.stopEach(context.WithoutCancel(ctx), pods, runonce.CriticalLast(), "", func(ctx context.Context, i int) error {
			ctx, cancel := context.WithTimeout(ctx, podspec.GracePeriod(pods[i])+stopSlack)
			defer cancel()
			_, err := c.target.stop(ctx, pods[i])
			return err
		})
		err = errors.Join(errs...)
	}
	code, _ := exitCode(ctx, results, "", nil)
	r := reportOf(c.target, results, code, time.Since(c.options.Start))
	c.keepReport(r, c.faults, true)
	if !c.reported {
		err = c.afterError(err, c.writeReport(c.output, r, c.faults))
	} else {
		c.display.Results(results)
	}
	if err != nil && code == report.ExitOK {
		code = report.ExitFailed
	}
	c.meter.concluded(results, code, time.Since(c.begun))
	return exitWith(code, errors.Join(err, c.meter.write()))
}

func (c *watchCommand) fail(r report.Report) error {
	c.meter.ended(r.ExitCode, time.Since(c.start))
	if err := c.meter.write(); err != nil {
		c.printError(err)
	}
	return c.writeFailedReport(c.output, r, c.faults)
}
