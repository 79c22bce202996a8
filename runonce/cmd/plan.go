package cmd

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
)

func (p *program) planCommand() *cli.Command {
	return &cli.Command{
		Name: "plan", Usage: "say what a run would do, and do nothing",
		ArgsUsage: "PATH...", Action: p.withLogger(p.plan),
		Description: "With --running, --capacity or --node it asks no engine and needs no root.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "running", Category: categoryNode, Usage: "take the pods that already run from the manifests at `PATH`"},
			securityFlag(),
			outputFlag("table, wide, json or yaml"),
		}, nodeFlags(), planFlags(), inputFlags(), engineFlags()),
	}
}

func (p *program) plan(c *cli.Context) error {
	format, err := formatOf(c, "table", "wide", "json", "yaml")
	if err != nil {
		return err
	}
	set, err := p.read(c)
	if err != nil {
		return err
	}
	var plan admit.Plan
	var images []string
	if c.IsSet("running") || c.IsSet("capacity") || c.IsSet("node") {
		plan, err = p.planOffline(c, set)
	} else {
		plan, images, err = p.planHere(c, set)
	}
	if err != nil {
		return err
	}
	document := report.NewPlan(plan)
	document.Pulls = images
	code := document.ExitCode()
	if len(set.Invalid) > 0 {
		code = report.ExitFailed
	}
	err = p.write(format, document, func(s report.Style) error { return document.Table(p.io.Stdout, s) })
	if err != nil {
		return err
	}
	return exitWith(code, nil)
}

// planHere plans for this machine and the pods that run on it, and names the images that
// would be pulled.
func (p *program) planHere(c *cli.Context, set *manifests.Set) (admit.Plan, []string, error) {
	s, err := p.setUp(c, set)
	if err != nil {
		return admit.Plan{}, nil, err
	}
	defer s.close()
	plan, err := p.decide(c, set, s)
	if err != nil {
		return plan, nil, err
	}
	present, err := s.engine.Images(c.Context)
	if err != nil {
		return plan, nil, unusable(fmt.Errorf("listing images: %w", err))
	}
	return plan, pulls(plan, present), nil
}

// planOffline plans for a node that need not be this machine.
func (p *program) planOffline(c *cli.Context, set *manifests.Set) (admit.Plan, error) {
	node, err := p.node(c, set, p.devices(c))
	if err != nil {
		return admit.Plan{}, err
	}
	o, err := p.admitOptions(c, set, false)
	if err != nil {
		return admit.Plan{}, err
	}
	var running []*v1.Pod
	if path := c.String("running"); path != "" {
		earlier, err := manifests.ReadPaths(c.Context, []string{path}, p.inputOptions(c))
		if err != nil {
			return admit.Plan{}, badInput(err)
		}
		running = earlier.Pods
	}
	return admit.Decide(node, running, set.Pods, o), nil
}
