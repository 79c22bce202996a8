package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/progress"
)

func (p *program) downCommand() *cli.Command {
	flags := slices.Concat([]cli.Flag{
		boolFlag("", "all pods of earlier runs, and what removed pods have left", "all"),
		boolFlag("", "delete their logs, with --all also those of pods removed before", "logs"),
		boolFlag("", "delete the images that only they used, except those from archives", "images"),
		quietFlag(),
	}, pluginFlags(), engineFlags(), clusterFlags())
	// It finds pods by where they came from, so it accepts the flags of run only for convenience.
	for _, f := range inputFlags() {
		flags = append(flags, hidden(f))
	}
	return &cli.Command{
		Name: "down", Usage: "stop pods gracefully and remove everything of them except their logs",
		ArgsUsage: "PATH... | [NAMESPACE/]POD... | --all", Action: p.down,
		Description: "PATH stops the pods that were started from this file, directory or URL, also if it has\n" +
			"been changed or deleted since. An argument that is no path is the name of a pod.",
		Flags: flags,
	}
}

func (p *program) down(c *cli.Context) error {
	p.outliveReaders()
	if c.Bool("all") == (c.Args().Len() > 0) {
		return usagef("down needs PATH..., POD... or --all")
	}
	p.display.Stopping()
	if p.cluster != nil {
		return p.downCluster(c)
	}
	s, err := p.connect(c)
	if err != nil {
		return err
	}
	defer s.close()
	all, err := s.list(c.Context)
	if err != nil {
		return err
	}
	pods, conclude, err := p.wantedPods(c, all)
	if err != nil {
		return err
	}
	err = p.afterError(p.stopPods(c, s, pods), conclude())
	if c.Bool("all") {
		defer p.display.Wait("removing what pods have left")()
		err = p.afterError(errors.Join(s.run.Sweep(), s.engine.Cleanup(c.Context)), err)
	}
	return err
}

// wantedPods returns those of the pods that the arguments mean. The caller calls conclude once they
// are stopped: one bad file must not keep the others running.
func (p *program) wantedPods(c *cli.Context, pods []*v1.Pod) (wanted []*v1.Pod, conclude func() error, err error) {
	if c.Bool("all") {
		if len(pods) == 0 && !c.Bool("quiet") {
			p.notice("there are no pods of earlier runs")
		}
		return pods, func() error { return nil }, nil
	}
	var selected []selection
	for _, arg := range c.Args().Slice() {
		one, err := p.selectBy(c, arg, pods)
		if err != nil {
			return nil, nil, err
		}
		selected, wanted = append(selected, one), append(wanted, one.pods...)
	}
	wanted = only(pods, func(pod *v1.Pod) bool { return slices.Contains(wanted, pod) })
	return wanted, func() (err error) {
		for _, one := range selected {
			p.notice(one.notice)
			err = p.afterError(err, one.err)
		}
		return err
	}, nil
}

// stopPods stops the pods, and deletes their logs if --logs says so.
func (p *program) stopPods(c *cli.Context, s *session, pods []*v1.Pod) error {
	done := "removed"
	if s.readOnly {
		done = "stopped"
	}
	err := p.stopAll(c.Context, pods, done, func(ctx context.Context, pod *v1.Pod) error {
		err := s.run.Revoke(pod, nil)
		if err == nil {
			err = s.pods.Stop(ctx, pod)
		}
		if s.readOnly && s.stopped(ctx, pod) {
			return nil // except for what is said of all
		}
		return err
	})
	if s.readOnly {
		err = errors.Join(err, fmt.Errorf("%s is read-only: the images, records and files of the pods are still there; "+
			"run this command again when it is writable", c.String("root")))
	}
	if c.Bool("logs") {
		err = errors.Join(err, s.pods.RemoveLogs(pods, c.Bool("all")))
	}
	if c.Bool("images") && !s.readOnly {
		err = p.afterError(err, p.dropImagesOf(c, s, pods))
	}
	return err
}

// stopAll stops the pods in parallel and prints what was done to them, in order.
func (p *program) stopAll(ctx context.Context, pods []*v1.Pod, done string, stop func(context.Context, *v1.Pod) error) error {
	p.display.OnInterrupt(progress.EffectAbandon)
	errs := p.stopEach(ctx, pods, stop)
	for i, pod := range pods {
		if errs[i] != nil {
			continue
		}
		if _, err := fmt.Fprintf(p.io.Stdout, "%s %s\n", podspec.FullName(pod), done); err != nil {
			errs = append(errs, fmt.Errorf("writing the result: %w", err))
			break
		}
	}
	return errors.Join(errs...)
}

// stopEach stops the pods in parallel and returns the error of each.
func (p *program) stopEach(ctx context.Context, pods []*v1.Pod, stop func(context.Context, *v1.Pod) error) []error {
	return inParallel(pods, -1, func(_ int, pod *v1.Pod) error {
		p.display.Pod(runonce.Progress{Pod: pod, State: "Stopping"})
		err := stop(ctx, pod)
		p.display.Pod(runonce.Stopped(ctx, pod, err))
		return err
	})
}

// stopped says whether no container of the pod runs.
func (s *session) stopped(ctx context.Context, pod *v1.Pod) bool {
	status, err := s.pods.Status(ctx, pod)
	return err == nil && !podspec.Runs(status)
}
