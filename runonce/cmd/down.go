package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
)

func (p *program) downCommand() *cli.Command {
	return &cli.Command{
		Name: "down", Usage: "stop pods gracefully and remove everything of them except their logs",
		ArgsUsage: "PATH... | --all", Action: p.withLogger(p.down),
		Flags: slices.Concat([]cli.Flag{
			boolFlag("", "all pods of earlier runs, and what removed pods have left", "all"),
			quietFlag(),
		}, inputFlags(), pluginFlags(), engineFlags()),
	}
}

func (p *program) down(c *cli.Context) error {
	if c.Bool("all") == (c.Args().Len() > 0) {
		return usagef("down needs either PATH... or --all")
	}
	var wanted map[types.NamespacedName]bool
	if !c.Bool("all") {
		var err error
		if wanted, err = p.names(c); err != nil {
			return err
		}
	}
	s, err := p.connect(c)
	if err != nil {
		return err
	}
	defer s.close()
	pods, err := s.list(c.Context)
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(pod *v1.Pod) bool {
		return wanted != nil && !wanted[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
	})
	err = p.stopAll(c.Context, s, pods)
	if c.Bool("all") {
		defer p.display.wait("removing what pods have left")()
		err = errors.Join(err, s.run.Sweep(), s.engine.Cleanup(c.Context))
	}
	return err
}

// names returns the names of the pods in the manifests, also of invalid ones: an error in its
// file must not keep a pod from being stopped.
func (p *program) names(c *cli.Context) (map[types.NamespacedName]bool, error) {
	set, err := manifests.ReadPaths(c.Context, c.Args().Slice(), p.inputOptions(c))
	names := map[types.NamespacedName]bool{}
	for _, pod := range set.Pods {
		names[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = true
	}
	for _, in := range set.Invalid {
		if in.Kind == "Pod" && in.Name != "" {
			names[types.NamespacedName{Namespace: cmp.Or(in.Namespace, v1.NamespaceDefault), Name: in.Name}] = true
		}
	}
	switch {
	case len(names) == 0 && err != nil:
		return nil, badInput(err)
	case len(names) == 0:
		return nil, noPod(c)
	case err != nil:
		p.log.Warn("some manifests are invalid", "error", err)
	}
	return names, nil
}

// stopAll stops the pods in parallel and prints those that are removed, in order.
func (p *program) stopAll(ctx context.Context, s *session, pods []*v1.Pod) error {
	p.display.onInterrupt(effectAbandon)
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, pod := range pods {
		wg.Go(func() {
			p.display.pod(runonce.Progress{Pod: pod, State: "Stopping"})
			if errs[i] = s.run.Revoke(pod, nil); errs[i] == nil {
				errs[i] = s.pods.Stop(ctx, pod)
			}
			p.display.pod(runonce.Stopped(ctx, pod, errs[i]))
		})
	}
	wg.Wait()
	for i, pod := range pods {
		if errs[i] != nil {
			continue
		}
		if _, err := fmt.Fprintf(p.io.Stdout, "%s/%s removed\n", pod.Namespace, pod.Name); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	return errors.Join(errs...)
}
