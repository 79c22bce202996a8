package cmd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runtime"
)

// downCommand is "down".
type downCommand struct {
	*program
	pluginFlags
	pastFlags
	inputFlags
	choiceFlags
	all, orphans, keep, withLogs, withImages bool
	graceByPriority                          string
	groups                                   runonce.StopGroups
	timeout, limit                           time.Duration
	chosen                                   bool // the command line chooses some of the pods
}

func (p *program) downCommand() *cli.Command {
	c := &downCommand{program: p}
	return p.command(cli.Command{
		Name: "down", Usage: "stop pods gracefully and remove everything except their logs",
		ArgsUsage: "PATH... | [NAMESPACE/]POD... | -l LABELS | --only NAME | --all | --orphans",
		Description: "PATH stops the pods that were started from this file, directory or URL, even if it has\n" +
			"been changed or deleted since. An argument that is not a path is the name of a pod.\n" +
			"--selector and --only stop only some of these pods, and leave Services and other objects alone.",
		Flags: []cli.Flag{
			boolFlag(&c.all, "", "all pods of earlier runs, and leftovers of removed pods", "all"),
			boolFlag(&c.orphans, "", "what killed runs have left that would have removed their pods", "orphans"),
			boolFlag(&c.keep, "", "stop the pods, but keep them for the next run", "keep"),
			textFlag(&c.graceByPriority, categoryShutdown, "`LIST` of PRIORITY=DURATION: stop in this order", "shutdown-grace-by-priority", ""),
			boolFlag(&c.withLogs, "", "delete their logs, and with --all those of pods removed earlier", "logs"),
			boolFlag(&c.withImages, "", "delete the images that only they used, except those from archives", "images"),
			&cli.DurationFlag{Name: "timeout", Destination: &c.timeout, Usage: "end the command after this `DURATION`", DefaultText: "no limit"},
			p.quietFlag(),
		},
	}, c, &c.pluginFlags, &c.pastFlags, &c.choiceFlags, hidden{&c.inputFlags}) // it finds pods by where they came from, and accepts them for convenience
}

// noteGiven: only the command line can set the deadline. Elsewhere the name is that of a run's. What killed runs have left
// is removed whatever the configuration chooses.
func (c *downCommand) noteGiven() { c.limit, c.chosen = c.timeout, c.given() }

func (c *downCommand) run(ctx context.Context, args []string) error {
	c.outliveReaders()
	if err := c.checkChoice(args); err != nil {
		return err
	}
	c.display.Stopping()
	if c.limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("--timeout %s has passed", c.limit))
		defer cancel()
		ctx = limited
	}
	engine := c.engine(c.console)
	engine.Network.CNIBinDirs = c.cniBinDirs.values
	machine := c.machine(engine)
	machine.keep = c.keep
	t, err := c.target(&c.clusterFlags, machine, clusterOptions{namespace: c.podNamespace, onlyNamespace: c.podNamespace != ""})
	if err != nil {
		return err
	}
	defer t.close()
	if c.orphans {
		pods, err := machine.removeOrphans(ctx)
		return errors.Join(err, c.printDone(pods, func(int) string { return "removed" }))
	}
	s := selector{c, t}
	namespaces := sync.OnceValue(func() []string { return s.namespaces(ctx, args) })
	all, err := t.list(ctx, namespaces)
	if err != nil {
		return err
	}
	pods, conclude, err := s.choose(ctx, args, inNamespace(c.podNamespace, all))
	if err != nil {
		return err
	}
	if err = c.stopAll(ctx, t, pods); c.keep {
		return c.afterError(err, conclude())
	}
	from := origins(args)
	if c.given() {
		from = nil // other pods may need what came from there
	}
	err = errors.Join(err, t.clean(ctx, cleanup{
		pods: pods, all: c.all, origins: from, namespace: c.podNamespace, namespaces: namespaces, logs: c.withLogs, images: c.withImages,
	}))
	return c.afterError(err, conclude())
}

// checkChoice refuses arguments that do not say what is stopped, in one way.
func (c *downCommand) checkChoice(args []string) error {
	ways := 0
	for _, way := range []bool{len(args) > 0 || c.given() && !c.orphans || c.chosen, c.all, c.orphans} {
		if way {
			ways++
		}
	}
	switch {
	case ways != 1:
		return usagef("down needs PATH..., POD..., --all or --orphans, or else --selector or --only")
	case c.orphans && (c.podNamespace != "" || c.withLogs || c.withImages || c.keep):
		return usagef("--orphans does what killed runs would have done: it cannot be used with --pod-namespace, --logs, --images or --keep")
	case c.keep && (c.withLogs || c.withImages):
		return usagef("--keep keeps all that the pods have: it cannot be used with --logs or --images")
	}
	return c.group()
}

// group reads in which order pods are stopped.
func (c *downCommand) group() (err error) {
	c.groups = runonce.CriticalLast()
	if c.graceByPriority == "" {
		return nil
	}
	if c.groups, err = runonce.ParseStopGroups(c.graceByPriority); err != nil {
		return usagef("--shutdown-grace-by-priority %w", err)
	}
	return nil
}

// stopAll stops the pods, those that depend on others before these, and prints what was done to them, in order.
func (c *downCommand) stopAll(ctx context.Context, t target, pods []*v1.Pod) error {
	c.display.OnInterrupt(progress.EffectAbandon)
	words := make([]string, len(pods))
	errs := c.stopEach(ctx, pods, c.groups, "", func(ctx context.Context, i int) (err error) {
		if grace := c.groups.Grace(pods[i]); grace > 0 {
			limited, cancel := context.WithTimeoutCause(ctx, grace+runtime.StopReserve, fmt.Errorf("the %s for pods of its priority have passed", grace))
			defer cancel()
			ctx = limited
		}
		words[i], err = t.stop(ctx, pods[i])
		return err
	})
	return errors.Join(append(errs, c.printDone(pods, func(i int) string {
		if errs[i] != nil {
			return ""
		}
		return words[i]
	}))...)
}

// printDone prints what was done to each of the pods, "" for nothing.
func (c *downCommand) printDone(pods []*v1.Pod, done func(i int) string) error {
	for i, pod := range pods {
		if word := done(i); word != "" {
			if _, err := fmt.Fprintln(c.io.Stdout, podspec.FullName(pod), word); err != nil {
				return fmt.Errorf("writing the result: %w", err)
			}
		}
	}
	return nil
}

// stopEach calls stop with the index of each of the pods, in parallel but for the pods on which others depend and the groups,
// and returns the error of each.
func (c *console) stopEach(ctx context.Context, pods []*v1.Pod, groups runonce.StopGroups, why string, stop func(ctx context.Context, i int) error) []error {
	errs := make([]error, len(pods))
	runonce.InStopOrder(ctx, pods, groups, func(ctx context.Context, i int) {
		c.display.Pod(runonce.Stopping(ctx, pods[i], why))
		errs[i] = stop(ctx, i)
		c.display.Pod(runonce.Stopped(ctx, pods[i], errs[i]))
	})
	return errs
}
