package cmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime"
)

func (p *program) planCommand() *cli.Command {
	return &cli.Command{
		Name: "plan", Usage: "show what a run would do",
		ArgsUsage: "PATH...", Action: p.plan,
		Description: "With --running, --capacity or --node it uses no engine and needs no root.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "running", Category: categoryNode, Usage: "assume that the pods of the manifests at `PATH` run"},
			securityFlag(),
			outputFlag("table", "wide", "json", "yaml"),
		}, imageFlags(), nodeFlags(), connectFlags(), planFlags(), inputFlags(), engineFlags(), clusterFlags(), creationFlags()[:1]),
	}
}

func (p *program) plan(c *cli.Context) error {
	set, err := p.read(c)
	if err != nil {
		return err
	}
	document, err := p.planDocument(c, set)
	if err != nil {
		return err
	}
	code := document.ExitCode()
	for _, in := range set.Invalid {
		code = report.ExitFailed
		document.Faults = append(document.Faults, in.Problems...)
		p.printProblems(in.Problems)
	}
	err = p.write(c, document, func(s report.Style) error { return document.Table(p.io.Stdout, s) })
	if err != nil {
		return err
	}
	return exitWith(code, nil)
}

// planDocument makes the plan: for a cluster, for a node that is described, or for this machine.
func (p *program) planDocument(c *cli.Context, set *manifests.Set) (report.Plan, error) {
	if p.cluster != nil {
		return p.planCluster(c, set)
	}
	var plan admit.Plan
	var images []string
	var err error
	if slices.ContainsFunc([]string{"running", "capacity", "node"}, func(flag string) bool { return p.settings.Given(c, flag) }) {
		plan, err = p.planOffline(c, set)
	} else {
		plan, images, err = p.planLocal(c, set)
	}
	document := report.NewPlan(plan)
	document.Pulls = images
	return document, err
}

// planLocal plans for this machine and the pods that run on it, and returns the images that
// would be pulled.
func (p *program) planLocal(c *cli.Context, set *manifests.Set) (admit.Plan, []string, error) {
	s, err := p.openNode(c, set, runtime.Options{Objects: set})
	if err != nil {
		return admit.Plan{}, nil, err
	}
	defer s.close()
	if err := p.settleImages(c, set, s); err != nil {
		return admit.Plan{}, nil, err
	}
	plan, err := p.decide(c, set, s)
	if err != nil {
		return plan, nil, err
	}
	stored, err := s.engine.Images(c.Context)
	if err != nil {
		return plan, nil, unusable(fmt.Errorf("listing images: %w", err))
	}
	return plan, imagesToPull(plan, stored, pullMode(c), s.supplied), nil
}

// planOffline plans for a node that may be another machine.
func (p *program) planOffline(c *cli.Context, set *manifests.Set) (admit.Plan, error) {
	for _, flag := range []string{"offline", "images-dir", "pull"} {
		if c.IsSet(flag) {
			return admit.Plan{}, usagef("--%s is about the images on this machine, and has no meaning with --running, --capacity or --node", flag)
		}
	}
	err := p.lockImages(c, set, func(context.Context, *v1.Pod, podspec.Image) (string, error) {
		return "", failure.Permanentf("it is not in %s, and --running, --capacity and --node use no engine to look for it", c.String("lock"))
	})
	if err != nil {
		return admit.Plan{}, err
	}
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
		input := p.inputOptions(c)
		input.RequireDigest, input.SHA256, input.PodSecurity = false, "", "" // which are about what is to run
		earlier, err := manifests.ReadPaths(c.Context, []string{path}, input)
		if err != nil {
			return admit.Plan{}, badInput(err)
		}
		running = earlier.Pods
	}
	return admit.Decide(node, running, set.Pods, o), nil
}
