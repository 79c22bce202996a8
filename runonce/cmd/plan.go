package cmd

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
)

// planCommand is "plan".
type planCommand struct {
	*program
	podFlags
	connectFlags
	earlierFlags
	outputFlags
	clusterFlags
	creationFlags
	queueFlags
	running string
	// described says that the command line describes the node.
	described bool
}

func (p *program) planCommand() *cli.Command {
	c := &planCommand{program: p, outputFlags: newOutputFlags("table", "wide", "json", "yaml")}
	return p.command(cli.Command{
		Name: "plan", Usage: "show what a run would do", ArgsUsage: "PATH...",
		Description: "With --running, --capacity or --node it uses no engine and needs no root.\n" +
			"ALLOCATABLE is the capacity less --reserve, --count-others, huge pages, and what a kubelet keeps\n" +
			"free: 100Mi of memory and 10% of ephemeral-storage.",
		Flags: []cli.Flag{textFlag(&c.running, categoryNode, "assume that the pods of the manifests at `PATH` are running", "running", "")},
	}, c, &c.podFlags, &c.connectFlags, &c.earlierFlags, &c.outputFlags, &c.clusterFlags, &c.creationFlags, &c.queueFlags)
}

// noteGiven: what the configuration says of the node is about this machine.
func (c *planCommand) noteGiven() {
	c.described = c.running != "" || c.capacity != "" || c.nodeFile != ""
}

func (c *planCommand) run(ctx context.Context, args []string) error {
	planning := c.planOf(&c.podFlags, args, c.queue)
	engine := c.podFlags.engine(c.console)
	c.connectFlags.setTo(&engine)
	t, err := c.target(&c.clusterFlags, c.planner(engine, planning),
		clusterOptions{namespace: c.podNamespace, createNamespace: c.createNamespace, planning: planning})
	if err != nil {
		return err
	}
	defer t.close()
	o, err := c.input(c.console)
	if err != nil {
		return err
	}
	t.input(&o)
	set, err := c.read(ctx, reading{args, o, c.skipInvalid, c.prune})
	if err != nil {
		return err
	}
	if err := c.earlierFlags.choose(c.console, set, planning); err != nil {
		return err
	}
	var document report.Plan
	if c.described {
		document, err = c.planOffline(ctx, set, planning, c.running)
	} else {
		document, err = t.plan(ctx, set)
	}
	if err != nil {
		return err
	}
	return c.show(document, set)
}

// show writes the plan, and returns an error with the exit code.
func (c *planCommand) show(document report.Plan, set *manifests.Set) error {
	code := document.ExitCode()
	for _, in := range set.Invalid {
		if !in.Optional {
			code = report.ExitFailed
		}
		document.Faults = append(document.Faults, in.Problems...)
		c.printProblems(in.Problems)
	}
	err := c.write(c.output, document, func(s report.Style) error { return document.Table(c.io.Stdout, s) })
	if err != nil {
		return err
	}
	return exitWith(code, nil)
}

func (c *planCommand) fail(r report.Report) error {
	document := report.NewPlan(admit.Plan{})
	document.Failure = r.Failure
	return c.writeDocument(c.output, document)
}
