package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

// waitCommand is "wait".
type waitCommand struct {
	*program
	outputFlags
	pastFlags
	goal           string
	settle         time.Duration
	timeout, limit time.Duration
	err            error // of writing to standard output
}

func (p *program) waitCommand() *cli.Command {
	c := &waitCommand{program: p, outputFlags: newOutputFlags("name", "json", "yaml")}
	return p.command(cli.Command{
		Name: "wait", Usage: "wait until pods of earlier runs have reached a goal", ArgsUsage: "[NAMESPACE/]POD...",
		Description: "It ends when every pod has reached the goal once, or can no longer reach it, with the exit code\n" +
			"that \"run\" would have. It starts, restarts and stops nothing: the run or watch of the pods does.",
		Flags: []cli.Flag{
			textFlag(&c.goal, "", "wait for this `GOAL`: running, ready, completed or deleted", "for", ""),
			durationFlag(&c.settle, categoryRun, "count a container as running after this `DURATION`", "settle", defaultSettle),
			&cli.DurationFlag{Name: "timeout", Destination: &c.timeout, Usage: "end the command after this `DURATION`", DefaultText: "no limit"},
			p.quietFlag(),
		},
	}, c, &c.outputFlags, &c.pastFlags)
}

// noteGiven: only the command line can set the deadline. Elsewhere the name is that of a run's.
func (c *waitCommand) noteGiven() { c.limit = c.timeout }

// until returns the goal, also in kubectl's words.
func (c *waitCommand) until() (runonce.Until, error) {
	goal := strings.ToLower(c.goal)
	switch goal = strings.TrimSuffix(goal, "=true"); goal {
	case "":
		return "", usagef("wait needs a goal: --for running, ready, completed or deleted")
	case "delete":
		return runonce.UntilDeleted, nil
	case "condition=ready":
		return runonce.UntilReady, nil
	}
	return runonce.Until(goal), checkOneOf("for", runonce.Until(goal), runonce.UntilRunning, runonce.UntilReady, runonce.UntilCompleted, runonce.UntilDeleted)
}

func (c *waitCommand) run(ctx context.Context, args []string) error {
	o := runonce.Options{Settle: c.settle, Timeout: c.limit, Start: time.Now(), Logger: c.log}
	var err error
	if o.Until, err = c.until(); err != nil {
		return err
	}
	if len(args) == 0 {
		return usagef("wait needs a POD")
	}
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	defer t.close()
	all, observer, err := t.observe(ctx, func() []string { return namespacesIn(args) }, o.Until)
	if err != nil {
		return err
	}
	pods, absent, err := c.choose(args, inNamespace(c.podNamespace, all), o.Until)
	if err != nil {
		return err
	}
	if o.Until != runonce.UntilDeleted {
		o.Logs = t.logs()
	}
	t.complete(&o)
	for i := range absent {
		c.met(absent[i].Pod)
	}
	w := &waits{c: c, states: map[string]string{}, end: func() {}}
	o.Progress = w.show
	results := runonce.Wait(ctx, observer, pods, o)
	w.end()
	return c.report(ctx, append(results, absent...), time.Since(o.Start), t.lost())
}

// choose returns the pods that the arguments name, each once. Those that do not exist are an error, except that they
// count as deleted.
func (c *waitCommand) choose(args []string, all []*v1.Pod, until runonce.Until) (pods []*v1.Pod, absent []runonce.Result, err error) {
	for _, arg := range args {
		found, err := resolve(arg, all, podspec.NameOf, errNoPod)
		switch {
		case errors.Is(err, errNoPod) && until == runonce.UntilDeleted:
			absent = append(absent, absentPod(arg, c.podNamespace))
		case errors.Is(err, errNoPod):
			return nil, nil, unknownPod(arg)
		case err != nil:
			return nil, nil, err
		case !slices.Contains(pods, found[0]):
			pods = append(pods, found[0])
		}
	}
	return pods, absent, nil
}

// absentPod is the result of a pod that does not exist.
func absentPod(ref, namespace string) runonce.Result {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name = namespace, withoutKind(ref)
	if within, name, ok := strings.Cut(pod.Name, "/"); ok {
		pod.Namespace, pod.Name = within, name
	}
	return runonce.Result{Pod: pod, Outcome: runonce.Removed, EarlierRun: true, Existed: true}
}

// report writes the report if it is wanted, and else says which pods have not reached the goal. It returns an error with
// the exit code.
func (c *waitCommand) report(ctx context.Context, results []runonce.Result, elapsed time.Duration, lost error) error {
	for i := range results {
		r := &results[i]
		r.Pod = r.Pod.DeepCopy()
		delete(r.Pod.Annotations, podspec.AnnotationOptional) // it was asked for by name
	}
	code, err := exitCode(ctx, results, "", lost)
	if c.output != "name" {
		return exitWith(code, errors.Join(err, c.write(c.output, report.New(results, code, elapsed), nil)))
	}
	for i := range results {
		if r := &results[i]; r.Outcome == runonce.TimedOut || r.Outcome == runonce.Canceled { // of others it was said at once
			c.unmet(r)
		}
	}
	if err = errors.Join(err, c.err); err != nil {
		code = max(code, report.ExitFailed)
	}
	return exitWith(code, err)
}

func (c *waitCommand) fail(r report.Report) error { return c.writeDocument(c.output, r) }

// met says that the pod has reached the goal.
func (c *waitCommand) met(pod *v1.Pod) {
	if c.output == "name" {
		if _, err := fmt.Fprintf(c.io.Stdout, "pod/%s condition met\n", pod.Name); err != nil && c.err == nil {
			c.err = fmt.Errorf("writing the result: %w", err)
		}
	}
}

// unmet says why the pod has not reached the goal.
func (c *waitCommand) unmet(r *runonce.Result) {
	if c.output == "name" {
		c.printError(fmt.Errorf("pod/%s: %s", r.Pod.Name, report.Unmet(r)))
	}
}

// waits shows for which pods the command waits.
type waits struct {
	c      *waitCommand
	states map[string]string // of the pods that are waited for, by name
	end    func()            // ends what is shown
}

// show shows an event of a pod. Calls do not overlap.
func (w *waits) show(e runonce.Progress) {
	name := podspec.FullName(e.Pod)
	w.states[name] = e.Message
	if r := (runonce.Result{Pod: e.Pod, Outcome: runonce.Outcome(e.State), Reason: e.Reason, Message: e.Message}); e.State != "Waiting" {
		delete(w.states, name)
		if report.Unmet(&r) == "" {
			w.c.met(e.Pod)
		} else {
			w.c.unmet(&r)
		}
	}
	w.end()
	if w.end = func() {}; len(w.states) > 0 {
		w.end = w.c.display.Wait(w.text(e.Total))
	}
}

// text says for which of all pods the command waits, and why.
func (w *waits) text(total int) string {
	const most = 3
	all := make([]string, 0, len(w.states))
	for _, name := range slices.Sorted(maps.Keys(w.states)) {
		all = append(all, name+": "+w.states[name])
	}
	text := strings.Join(all[:min(most, len(all))], "; ")
	if len(all) > most {
		text += fmt.Sprintf(" and %d more", len(all)-most)
	}
	return fmt.Sprintf("waiting for %d of %s: %s", len(all), runonce.Count(total, "pod"), text)
}
