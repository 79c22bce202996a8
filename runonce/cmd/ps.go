package cmd

import (
	"context"
	goruntime "runtime"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

// psCommand is "ps".
type psCommand struct {
	*program
	outputFlags
	pastFlags
	choiceFlags
	all bool
}

func (p *program) psCommand() *cli.Command {
	c := &psCommand{program: p, outputFlags: newOutputFlags("table", "wide", "json", "yaml")}
	return p.command(cli.Command{
		Name: "ps", Usage: "list the pods of earlier runs, their current state and last outcome", ArgsUsage: "[[NAMESPACE/]POD...]",
		Description: "With PODs, it lists only those and prints all messages and the last log lines below the table.",
		Flags:       []cli.Flag{boolFlag(&c.all, "", "list the pods as well that the last run of an input has not started", "all", "a")},
	}, c, &c.outputFlags, &c.pastFlags, &c.choiceFlags)
}

func (c *psCommand) run(ctx context.Context, args []string) error {
	o := c.engine(c.console)
	o.Looks = true
	t, err := c.pastTarget(&c.pastFlags, o)
	if err != nil {
		return err
	}
	defer t.close()
	states, err := t.states(ctx, func() []string { return c.namespaces(args) })
	if err != nil {
		return err
	}
	if c.all {
		more, err := t.neverStarted(states)
		if err != nil {
			return err
		}
		states = append(states, more...)
	}
	if states, err = c.wanted(states, args); err != nil {
		return err
	}
	c.addContainers(ctx, states, t)
	if rt, ok := t.runtime().(runonce.Recorder); ok && c.output != "table" && c.output != "wide" {
		c.addEvents(ctx, states, rt)
	}
	document := report.NewPods(states)
	return c.write(c.output, document, func(s report.Style) error { return document.Table(c.io.Stdout, s, time.Now()) })
}

// wanted returns the states of the pods that the arguments name, or of all without any.
func (c *psCommand) wanted(all []report.PodState, args []string) ([]report.PodState, error) {
	pods := make([]*v1.Pod, 0, len(all))
	for _, state := range all {
		pods = append(pods, state.Pod)
	}
	pods = inNamespace(c.podNamespace, pods)
	if len(args) > 0 {
		var named []*v1.Pod
		for _, arg := range args {
			found, err := resolve(arg, pods, podspec.NameOf, usagef("no pod %q; see %q", arg, "runonce ps"))
			if err != nil {
				return nil, err
			}
			named = append(named, found...)
		}
		pods = named
	}
	pods, err := c.choose(pods)
	if err != nil {
		return nil, err
	}
	states := slices.DeleteFunc(all, func(s report.PodState) bool { return !slices.Contains(pods, s.Pod) })
	for i := range states {
		states[i].Named = len(args) > 0
	}
	return states, nil
}

// addContainers adds the containers of the pods and what they have used, with the last lines of their logs if the pod was named.
func (c *console) addContainers(ctx context.Context, states []report.PodState, t target) {
	var all errgroup.Group
	all.SetLimit(goruntime.GOMAXPROCS(0))
	for i := range states {
		all.Go(func() error {
			s := &states[i]
			var err error
			if s.Containers, err = runonce.Containers(s.Pod, t.logs(), s.Named && s.Pod.Status.Phase != v1.PodSucceeded); err != nil {
				c.log.Warn("could not read the end of a log", "error", err)
			}
			runonce.AddUsage(ctx, t.runtime(), s.Pod, s.Containers)
			return nil
		})
	}
	_ = all.Wait() // none of them fails
}

// addEvents adds the events of the pods.
func (c *psCommand) addEvents(ctx context.Context, states []report.PodState, of runonce.Eventer) {
	for i := range states {
		if states[i].NeverStarted {
			continue
		}
		var err error
		if states[i].Events, err = of.Events(ctx, states[i].Pod); err != nil {
			c.log.Warn("could not read the events of a pod", "pod", podspec.FullName(states[i].Pod), "error", err)
		}
	}
}

func (c *psCommand) fail(r report.Report) error {
	document := report.NewPods(nil)
	document.Failure = r.Failure
	return c.writeDocument(c.output, document)
}
