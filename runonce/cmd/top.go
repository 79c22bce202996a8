package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runonce/report"
)

// defaultInterval is how long processors are watched: long enough for a few periods of their quota.
const defaultInterval = time.Second

// topCommand is "top".
type topCommand struct {
	*program
	outputFlags
	pastFlags
	containers, noHeaders bool
	sortBy                string
	interval              time.Duration
}

func (p *program) topCommand() *cli.Command {
	c := &topCommand{program: p, outputFlags: newOutputFlags("table", "json", "yaml")}
	return p.command(cli.Command{
		Name: "top", Usage: "show what pods use of processors and memory", ArgsUsage: "[[NAMESPACE/]POD...]",
		Description: "CPU is the average over a short time, in thousandths of a processor. Memory is the working set.\n" +
			"On a cluster, both are those of its metrics API.",
		Flags: []cli.Flag{
			boolFlag(&c.containers, "", "show each container", "containers"),
			&cli.DurationFlag{Name: "interval", Destination: &c.interval, Value: defaultInterval, Usage: "measure for this `DURATION`"},
			boolFlag(&c.noHeaders, "", "print no column titles", "no-headers"),
			&cli.StringFlag{Name: "sort-by", Destination: &c.sortBy, Usage: "sort by the use of this `RESOURCE`: cpu or memory", DefaultText: "names"},
		},
	}, c, &c.outputFlags, &c.pastFlags)
}

func (c *topCommand) run(ctx context.Context, args []string) error {
	if c.sortBy != "" {
		if err := checkOneOf("sort-by", c.sortBy, report.ByCPU, report.ByMemory); err != nil {
			return err
		}
	}
	if c.interval == 0 {
		return usagef("--interval 0s: must be positive")
	}
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	defer t.close()
	usage, missing, err := c.measure(ctx, t, podArguments(args))
	if err != nil || len(usage) == 0 && missing != nil {
		return cmp.Or(err, missing)
	}
	document := report.NewUsage(usage, c.sortBy)
	err = c.write(c.output, document, func(report.Style) error { return document.Table(c.io.Stdout, c.containers, !c.noHeaders) })
	return cmp.Or(err, missing)
}

// measure returns what the pods use that the references name, or all pods that run. missing says which of those that
// are named do not.
func (c *topCommand) measure(ctx context.Context, t target, refs []string) (all []report.PodUsage, missing, err error) {
	pods, err := t.list(ctx, func() []string { return namespacesIn(refs) })
	if err != nil {
		return nil, nil, err
	}
	pods = inNamespace(c.podNamespace, pods)
	if len(refs) > 0 {
		if pods, err = namedPods(refs, pods, unknownPod); err != nil {
			return nil, nil, err
		}
	}
	used, err := t.usage(ctx, pods, c.interval)
	if err != nil {
		return nil, nil, err
	}
	for i, pod := range pods {
		switch {
		case used[i] != nil:
			all = append(all, report.NewPodUsage(pod, *used[i]))
		case len(refs) > 0:
			missing = errors.Join(missing, notMeasured(pod))
		}
	}
	return all, missing, nil
}

// notMeasured is the error for a pod of which it is not known what it uses.
func notMeasured(pod *v1.Pod) error {
	if !podspec.AnyRuns(pod.Status) {
		return fmt.Errorf("pod %q does not run", podspec.FullName(pod))
	}
	return fmt.Errorf("it is not known yet what pod %q uses", podspec.FullName(pod))
}

// usage measures what the pods use on this machine.
func (t *nodeTarget) usage(ctx context.Context, pods []*v1.Pod, interval time.Duration) ([]*podusage.Pod, error) {
	known, err := t.pods.Usage(ctx, pods, interval)
	if err != nil {
		return nil, err
	}
	out := make([]*podusage.Pod, len(pods))
	for i, pod := range pods {
		if used, ok := known[pod.UID]; ok {
			out[i] = &used
		}
	}
	return out, nil
}

// usage asks the cluster what the pods use.
func (t *clusterTarget) usage(ctx context.Context, pods []*v1.Pod, _ time.Duration) ([]*podusage.Pod, error) {
	known, err := t.pods.Usage(ctx, pods)
	if err != nil {
		return nil, err
	}
	out := make([]*podusage.Pod, len(pods))
	for i, pod := range pods {
		if used, ok := known[podspec.NameOf(pod)]; ok {
			out[i] = &used
		}
	}
	return out, nil
}

func (c *topCommand) fail(r report.Report) error {
	document := report.NewUsage(nil, "")
	document.Failure = r.Failure
	return c.writeDocument(c.output, document)
}
