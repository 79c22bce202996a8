package cmd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/events"
	"github.com/runonce/runonce/runtime/logs"
)

// How often events are looked for that have happened meanwhile.
const (
	machinePeriod = 200 * time.Millisecond
	clusterPeriod = 2 * time.Second
)

// eventsCommand is "events".
type eventsCommand struct {
	*program
	outputFlags
	pastFlags
	eventOptions
}

// eventOptions select events.
type eventOptions struct {
	pods   []string // references; none for all pods
	within string   // the namespace; "" for all
	follow bool     // with those that happen until ctx is done
}

func (p *program) eventsCommand() *cli.Command {
	c := &eventsCommand{program: p, outputFlags: newOutputFlags("table", "json", "yaml")}
	return p.command(cli.Command{
		Name: "events", Usage: "list what has happened to pods", ArgsUsage: "[[NAMESPACE/]POD...]",
		Description: "The events of a pod are kept as long as its logs, even after the pod is removed and run again.\n" +
			"Those of pods that were never started are kept, too, of the last 100.",
		Flags: []cli.Flag{boolFlag(&c.follow, "", "go on with the events that happen until interrupted", "follow", "f", "watch", "w")},
	}, c, &c.outputFlags, &c.pastFlags)
}

func (c *eventsCommand) run(ctx context.Context, args []string) error {
	if c.follow && c.output != "table" {
		return usagef("--follow prints a table: it has no meaning with -o %s", c.output)
	}
	c.pods, c.within = args, c.podNamespace
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	defer t.close()
	var log report.EventLog
	err = t.events(ctx, c.eventOptions, func(all []report.Event) error {
		if c.follow {
			return log.Write(c.io.Stdout, all, time.Now())
		}
		document := report.NewEvents(all)
		return c.write(c.output, document, func(report.Style) error { return document.Table(c.io.Stdout, time.Now()) })
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (c *eventsCommand) fail(r report.Report) error {
	document := report.NewEvents(nil)
	document.Failure = r.Failure
	return c.writeDocument(c.output, document)
}

// noEvents is the error for a pod of which nothing is known.
func noEvents(ref, place string) error {
	return usagef("no events of pod %q %s; see %q", ref, place, "runonce events")
}

// choose returns those of the candidates that the options select.
func choose[T any](o eventOptions, all []T, nameOf func(T) types.NamespacedName, place string) ([]T, error) {
	all = slices.DeleteFunc(all, func(one T) bool { return o.within != "" && nameOf(one).Namespace != o.within })
	if len(o.pods) == 0 {
		return all, nil
	}
	chosen := map[types.NamespacedName]bool{}
	for _, ref := range o.pods {
		found, err := resolve(ref, all, nameOf, noEvents(ref, place))
		if err != nil {
			return nil, err
		}
		chosen[nameOf(found[0])] = true
	}
	return slices.DeleteFunc(all, func(one T) bool { return !chosen[nameOf(one)] }), nil
}

// eventsOf returns the events of a pod as they are reported.
func eventsOf(namespace, name, uid string, all []podevent.Event) []report.Event {
	out := make([]report.Event, 0, len(all))
	for _, e := range all {
		out = append(out, report.Event{Namespace: namespace, Pod: name, UID: uid, Event: e})
	}
	return out
}

// repeat calls f at once, and if the events are followed again and again until ctx is done.
func (o eventOptions) repeat(ctx context.Context, period time.Duration, f func() error) error {
	for {
		if err := f(); err != nil || !o.follow {
			return err
		}
		select {
		case <-time.After(period):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// events shows the events that are kept on this machine. It needs no engine for that.
func (t *nodeTarget) events(ctx context.Context, o eventOptions, show func([]report.Event) error) error {
	store := logs.Store{Dir: t.options.LogDir, Root: t.options.Root}
	shown := ""
	return o.repeat(ctx, machinePeriod, func() error {
		found, state, err := eventFiles(store)
		if err != nil || state == shown {
			return err
		}
		first := shown == ""
		shown = state
		if found, err = choose(o, found, podOfLogs, "in "+store.Dir); err != nil && first {
			return err
		}
		var all []report.Event // none if they were there before
		for _, f := range found {
			kept, err := events.Read(store.EventsPath(f.Pod))
			if err != nil {
				return err
			}
			all = append(all, eventsOf(f.Namespace, f.Name, f.UID, kept)...)
		}
		return show(all)
	})
}

func podOfLogs(f logs.Found) types.NamespacedName {
	return types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
}

// eventFiles returns the pods that have events, and a text that differs when these have changed.
func eventFiles(store logs.Store) (pods []logs.Found, state string, err error) {
	all, err := store.List()
	if err != nil {
		return nil, "", err
	}
	var b strings.Builder
	b.WriteByte('\n')
	for _, f := range all {
		path := store.EventsPath(f.Pod)
		if info, err := os.Stat(path); err == nil {
			pods = append(pods, f)
			fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return pods, b.String(), nil
}

// events shows the events that the cluster has of our pods.
func (t *clusterTarget) events(ctx context.Context, o eventOptions, show func([]report.Event) error) error {
	pods, err := t.list(ctx, func() []string { return namespacesIn(o.pods) })
	if err != nil {
		return err
	}
	if len(o.pods) == 0 {
		t.noticeSeen()
	}
	return o.repeat(ctx, clusterPeriod, func() error {
		chosen, err := choose(o, pods, podspec.NameOf, "on the cluster")
		if err != nil {
			return err
		}
		var all []report.Event
		for _, pod := range chosen {
			known, err := t.pods.Events(ctx, pod)
			if err != nil {
				return unusable(err)
			}
			all = append(all, eventsOf(pod.Namespace, pod.Name, string(pod.UID), known)...)
		}
		if err := show(all); err != nil || !o.follow {
			return err
		}
		if now, err := t.pods.List(ctx); err == nil {
			pods = unite(pods, now)
		}
		return nil
	})
}

// unite returns the pods with those that have been added.
func unite(pods, now []*v1.Pod) []*v1.Pod {
	for _, pod := range now {
		if !slices.ContainsFunc(pods, func(o *v1.Pod) bool { return o.UID == pod.UID }) {
			pods = append(pods, pod)
		}
	}
	return pods
}
