package cmd

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/record"
)

// stopSlack is how much longer than its grace period a pod may take to stop.
const stopSlack = time.Minute

func (p *program) watchCommand() *cli.Command {
	// A run that does not end has no end to wait for, to report or to remove pods at.
	flags := slices.DeleteFunc(p.runCommand().Flags, func(f cli.Flag) bool {
		return slices.Contains([]string{
			"timeout", "fail-fast", "rm", "exit-code-from", "junit", "timeline", "logs-to", "max-restarts", "prune", "rerun",
			"kubeconfig", "context", "create-namespace", "schedule-timeout",
		}, cmdline.FlagName(f))
	})
	flags = append(flags,
		&cli.IntFlag{Name: "max-restarts", Category: categoryRun, Usage: "restart a container up to `N` times after crashes", DefaultText: "no limit"},
		boolFlag(categoryRun, "stop the pods at the end", "stop-pods"),
		// What a run with --prune does, and so reads.
		&cli.BoolFlag{Name: "prune", Value: true, Hidden: true},
		&cli.StringFlag{Name: "kubeconfig", Hidden: true}, &cli.StringFlag{Name: "context", Hidden: true},
	)
	return &cli.Command{
		Name: "watch", Usage: "run the pods of manifests, keep them running and apply changes of the manifests",
		ArgsUsage: "PATH...", Action: p.watchPaths,
		Description: "PATH is a directory, a file or a URL. SIGHUP reads all of them again. SIGTERM and SIGINT end the\n" +
			"command and leave the pods running.",
		Flags: flags,
	}
}

// keeper keeps the pods of the arguments running.
type keeper struct {
	*program
	c       *cli.Context
	o       runonce.Options
	s       *session
	objects *currentObjects

	plan    admit.Plan
	invalid []runonce.Result
}

// currentObjects are those of the manifests that were read last.
type currentObjects struct{ set atomic.Pointer[manifests.Set] }

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

// watchPaths runs the pods, and goes on until it is interrupted.
func (p *program) watchPaths(c *cli.Context) error {
	p.outliveReaders()
	o, err := runOptions(c)
	if err != nil {
		return err
	}
	if slices.Contains(c.Args().Slice(), "-") {
		return usagef("watch: standard input can only be read once: use run")
	}
	o.Start, o.Logger, o.Progress = time.Now(), p.log, p.display.Pod
	p.display.Goal(o.Until)
	p.display.Service()
	changes := p.changes(c)
	set, err := p.read(c)
	if err != nil {
		return err
	}
	k := &keeper{program: p, c: c, o: o, objects: &currentObjects{}}
	if err := k.begin(set); err != nil {
		return err
	}
	defer k.s.close()
	return k.keep(changes)
}

// changes returns a channel that gets a value when the files have changed, or SIGHUP has come.
func (p *program) changes(c *cli.Context) <-chan struct{} {
	args := c.Args().Slice()
	paths := make([]string, 0, len(args))
	for _, arg := range args {
		if origin := manifests.Origin(arg); filepath.IsAbs(origin) {
			paths = append(paths, origin)
		}
	}
	w := newWatcher(paths, c.Bool("recursive"), func() string { return manifests.Fingerprint(c.Context, args, p.inputOptions(c)) })
	w.hangups = p.hangups
	if err := w.start(c.Context); err != nil {
		p.log.Warn("changes of the manifests are noticed late", "error", err)
	}
	p.reloads.Store(true)
	if p.io.CatchHangups != nil {
		p.io.CatchHangups() // it ends nothing here
	}
	return w.changed
}

// begin opens the engine and makes the first plan.
func (k *keeper) begin(set *manifests.Set) (err error) {
	k.objects.set.Store(set)
	if k.s, err = k.openNode(k.c, set, runtime.Options{Objects: k.objects}); err != nil {
		return err
	}
	k.o.Logs = podLogs{k.s.pods}
	if _, err := k.replan(set, k.s.run); err != nil {
		k.s.close()
		return err
	}
	return nil
}

// replan makes a plan for the manifests when it is the turn of this command. The run before this one,
// if it is another one, goes on meanwhile.
func (k *keeper) replan(set *manifests.Set, run *record.Run) (before *record.Run, err error) {
	if err := k.settleImages(k.c, set, k.s); err != nil {
		return nil, err
	}
	if err := k.enter(k.c.Context, run); err != nil {
		return nil, err
	}
	before, k.s.run = k.s.run, run
	plan, err := k.reserve(k.c, set, k.s)
	if err != nil {
		k.s.run = before
		k.s.warn(run.Abandon())
		return nil, err
	}
	k.plan, k.invalid = plan, invalidResults(set)
	k.display.Plan(plan.Admitted())
	return before, nil
}

// keep carries out one plan after the other until the command is interrupted.
func (k *keeper) keep(changes <-chan struct{}) error {
	k.display.OnInterrupt(progress.EffectLeave)
	if k.c.Bool("stop-pods") {
		k.display.OnInterrupt(progress.EffectStop)
	}
	process.DropCode()
	for {
		over, done := make(chan struct{}), make(chan []runonce.Result, 1)
		o, run, plan := k.o, k.s.run, k.plan
		o.Keep, o.AfterStops = over, func() { k.s.warn(run.Leave()) }
		o.Concluded = k.concluded(k.invalid)
		go func() { done <- runonce.Run(k.c.Context, k.s.pods, plan, o) }()
		changed := false
		for !changed {
			select {
			case results := <-done:
				return k.end(append(results, k.invalid...))
			case <-changes:
				changed = k.reload(func() { close(over); <-done })
			}
		}
	}
}

// reload reads the manifests and --images-dir again and makes a plan. If that succeeds, it ends the run before, which
// goes on meanwhile, and reports true. What is invalid changes nothing.
func (k *keeper) reload(endRun func()) bool {
	k.log.Info("reading the manifests again")
	set, err := k.read(k.c)
	if err == nil {
		err = k.s.importImages(k.c) // new manifests may come with their images
	}
	var before *record.Run
	if err == nil {
		var node *v1.Node
		if node, err = k.node(k.c, set, k.devices(k.c)); err == nil {
			k.s.node = node
			before, err = k.replan(set, k.s.records.NewRun())
		}
	}
	if err != nil {
		if k.c.Context.Err() == nil {
			k.printError(unchanged(err))
		}
		return false
	}
	endRun()
	k.objects.set.Store(set)
	k.s.warn(before.Close())
	return true
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
func (k *keeper) concluded(invalid []runonce.Result) func([]runonce.Result) {
	faults := k.faults // the manifests may be read again meanwhile
	return func(results []runonce.Result) {
		results = append(slices.Clone(results), invalid...)
		if slices.ContainsFunc(results, func(r runonce.Result) bool { return r.Outcome == runonce.Canceled }) {
			return // interrupted, or there is another plan
		}
		code := report.ExitCode(results, 0)
		if code == report.ExitOK {
			k.display.Ready()
		}
		if k.reported {
			k.warnRefused(results)
			return
		}
		r := report.New(results, code, time.Since(k.o.Start))
		if err := k.writeReport(k.c, r, faults); err != nil {
			k.printError(err)
		}
	}
}

// warnRefused logs which pods the plan does not run.
func (k *keeper) warnRefused(results []runonce.Result) {
	for _, r := range results {
		if r.Outcome == runonce.Rejected || r.Outcome == runonce.Preempted {
			k.log.Warn("the pod does not run", "pod", podspec.FullName(r.Pod), "outcome", r.Outcome, "reason", r.Reason, "error", r.Message)
		}
	}
}

// end stops the pods, if they are to be stopped, and returns the error with the exit code for the
// last results.
func (k *keeper) end(results []runonce.Result) error {
	var err error
	if k.c.Bool("stop-pods") {
		pods := k.plan.Admitted()
		errs := k.stopEach(context.WithoutCancel(k.c.Context), pods, func(ctx context.Context, pod *v1.Pod) error {
			ctx, cancel := context.WithTimeout(ctx, podspec.GracePeriod(pod)+stopSlack)
			defer cancel()
			return errors.Join(k.s.run.Revoke(pod, nil), k.s.pods.Stop(ctx, pod))
		})
		err = errors.Join(errs...)
	}
	if !k.reported {
		return k.afterError(err, k.report(k.c, results, time.Since(k.o.Start), nil))
	}
	k.display.Results(results)
	code, _ := exitCode(k.c, results, nil)
	if err != nil && code == report.ExitOK {
		code = report.ExitFailed
	}
	return exitWith(code, err)
}
