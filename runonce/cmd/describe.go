package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/cluster"
	"github.com/runonce/runonce/runtime/events"
	"github.com/runonce/runonce/runtime/logs"
)

// describeInterval is how long the use of processors is measured for a description: too short to be waited for.
const describeInterval = 200 * time.Millisecond

// describeCommand is "describe".
type describeCommand struct {
	*program
	pastFlags
}

func (p *program) describeCommand() *cli.Command {
	c := &describeCommand{program: p}
	return p.command(cli.Command{
		Name: "describe", Usage: "show in detail what is known of pods", ArgsUsage: "[NAMESPACE/]POD...",
		Description: "It prints the sections of \"kubectl describe pod\" and what runonce knows besides. Of a pod that is\n" +
			"removed, or was never started, it prints the logs and events that are left.",
	}, c, &c.pastFlags)
}

// descriptor writes what is known of a pod.
type descriptor interface {
	Text(w io.Writer, now time.Time) error
}

func (c *describeCommand) run(ctx context.Context, args []string) error {
	refs := podArguments(args)
	if len(refs) == 0 {
		return usagef("describe needs a POD")
	}
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	defer t.close()
	all, err := c.describe(ctx, t, refs)
	if err != nil {
		return err
	}
	for i, one := range all {
		if i > 0 {
			_, err = fmt.Fprint(c.io.Stdout, "\n\n") // as kubectl does
		}
		if err := cmp.Or(err, one.Text(c.io.Stdout, time.Now())); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	return nil
}

// describe finds out what is known of the pods that the references name, in their order.
func (c *describeCommand) describe(ctx context.Context, t target, refs []string) ([]descriptor, error) {
	states, err := t.states(ctx, func() []string { return namespacesIn(refs) })
	if err != nil {
		return nil, err
	}
	states = slices.DeleteFunc(states, func(s report.PodState) bool { return c.podNamespace != "" && s.Pod.Namespace != c.podNamespace })
	var all []descriptor
	var present []*report.Description
	for _, ref := range refs {
		found, err := resolve(ref, states, func(s report.PodState) types.NamespacedName { return podspec.NameOf(s.Pod) }, errNoPod)
		if errors.Is(err, errNoPod) {
			remains, err := t.remains(ref, c.podNamespace)
			if err != nil {
				return nil, err
			}
			all = append(all, remains)
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, state := range found {
			d := &report.Description{PodState: state}
			present, all = append(present, d), append(all, d)
		}
	}
	return all, c.complete(ctx, t, present)
}

// complete adds what is known of the pods besides their states. What cannot be found out is left out, and said.
func (c *describeCommand) complete(ctx context.Context, t target, all []*report.Description) error {
	pods := make([]*v1.Pod, 0, len(all))
	for _, d := range all {
		pods = append(pods, d.Pod)
	}
	used, err := t.usage(ctx, pods, describeInterval)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !errors.Is(err, cluster.ErrNoMetrics):
		c.log.Warn("could not find out what the pods use", "error", err)
	}
	for i, d := range all {
		if used != nil {
			d.Usage = used[i]
		}
		c.completeOne(ctx, t, d)
	}
	return nil
}

func (c *describeCommand) completeOne(ctx context.Context, t target, d *report.Description) {
	warn := func(what string, err error) {
		if err != nil {
			c.log.Warn("could not find the "+what+" of the pod", "pod", podspec.FullName(d.Pod), "error", err)
		}
	}
	var err error
	d.Containers, err = runonce.Containers(d.Pod, t.logs(), false)
	warn("logs", err)
	runonce.AddUsage(ctx, t.runtime(), d.Pod, d.Containers)
	if rt, ok := t.runtime().(runonce.Eventer); ok {
		d.Events, err = rt.Events(ctx, d.Pod)
		warn("events", err)
	}
	warn("Services", t.describe(ctx, d))
}

// describe adds the digests of images, and the Services of this machine that choose the pod.
func (t *nodeTarget) describe(ctx context.Context, d *report.Description) error {
	d.Digests = t.pods.Digests(ctx, d.Pod)
	all, err := t.engine.Services().Services()
	for _, svc := range all {
		if podspec.Selects(svc, d.Pod) {
			d.Services = append(d.Services, svc)
		}
	}
	return err
}

// remains returns the logs and events of the newest pod of that name.
func (t *nodeTarget) remains(ref, namespace string) (report.Remains, error) {
	store := logs.Store{Dir: t.options.LogDir, Root: t.options.Root}
	all, err := store.List()
	if err != nil {
		return report.Remains{}, err
	}
	all = slices.DeleteFunc(all, func(f logs.Found) bool { return !f.Owned || namespace != "" && f.Namespace != namespace })
	all, err = resolve(ref, all, podOfLogs, usagef("no pod %q on this machine, and nothing is left of one; see %q", ref, "runonce ps"))
	if err != nil {
		return report.Remains{}, err
	}
	last := slices.MaxFunc(all, func(a, b logs.Found) int { return a.Changed.Compare(b.Changed) })
	r := report.Remains{
		Namespace: last.Namespace, Name: last.Name, UID: last.UID, Started: last.HasLogs(), Changed: last.Changed, Logs: map[string]string{},
	}
	mark := store.Mark(last.Path)
	for _, container := range slices.Concat(mark.Init, mark.Containers) {
		if path, err := logs.Newest(filepath.Join(last.Path, container), false); err == nil {
			r.Logs[container] = path
		}
	}
	r.Events, err = events.Read(store.EventsPath(last.Pod))
	return r, err
}

// describe adds the Services of the cluster that choose the pod.
func (t *clusterTarget) describe(ctx context.Context, d *report.Description) (err error) {
	d.ServiceAccount = true
	d.Services, err = t.pods.Services(ctx, d.Pod)
	return err
}

// remains knows nothing: a cluster forgets pods that are deleted.
func (*clusterTarget) remains(ref, _ string) (report.Remains, error) {
	return report.Remains{}, notOnCluster(ref)
}
