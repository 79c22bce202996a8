package cmd

import (
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce/report"
)

func (p *program) psCommand() *cli.Command {
	return &cli.Command{
		Name: "ps", Usage: "list the pods of earlier runs and their current state",
		Action: p.ps,
		Flags:  slices.Concat([]cli.Flag{outputFlag("table", "wide", "json", "yaml")}, engineFlags(), clusterFlags()),
	}
}

func (p *program) ps(c *cli.Context) error {
	list := p.listNode
	if p.cluster != nil {
		list = p.listCluster
	}
	pods, err := list(c)
	if err != nil {
		return err
	}
	document := report.NewPods(pods)
	return p.write(c, document, func(s report.Style) error { return document.Table(p.io.Stdout, s, time.Now()) })
}

// listNode returns the pods on this machine.
func (p *program) listNode(c *cli.Context) ([]*v1.Pod, error) {
	s, err := p.connect(c)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.pods.Probe(c.Context); err != nil {
		return nil, unusable(fmt.Errorf("probing pods: %w", err))
	}
	return s.list(c.Context)
}
