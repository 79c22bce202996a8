package cmd

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/cluster"
	"github.com/runonce/runonce/runtime/logs"
)

// followFlags say whose logs a run shows on standard error.
type followFlags struct {
	refs list
	// pods are those that the references name, set by choose.
	pods []*v1.Pod
}

// wanted says whether logs are shown.
func (f *followFlags) wanted() bool {
	return len(f.refs.values) > 0 && !slices.Equal(f.refs.values, []string{"false"})
}

// choose finds the pods of the input whose logs are shown: all if the flag has no value.
func (f *followFlags) choose(set *manifests.Set) error {
	f.pods = set.Pods
	if slices.Contains(f.refs.values, "true") {
		return nil
	}
	f.pods = nil
	for _, ref := range f.refs.values {
		found, err := resolve(ref, set.Pods, podspec.NameOf, usagef("--follow-logs: no pod %q in the input", ref))
		if err != nil {
			return err
		}
		f.pods = append(f.pods, found...)
	}
	return nil
}

// shows says whether the logs of the pod are shown.
func (f *followFlags) shows(pod *v1.Pod) bool {
	return slices.ContainsFunc(f.pods, func(one *v1.Pod) bool { return one.UID == pod.UID })
}

// flags: a flag without a value stands for all pods.
func (f *followFlags) flags() []cli.Flag {
	f.refs.alone = true
	return []cli.Flag{listFlag(&f.refs, categoryReport, "print logs to standard error, of all or =`POD`", "follow-logs", "")}
}

// logFollower shows the logs of containers while a run goes on.
type logFollower struct {
	shows func(*v1.Pod) bool
	// line prints a line of a container's log, and warn says that its log cannot be shown.
	line func(pod *v1.Pod, container string, l logs.Line) error
	warn func(pod *v1.Pod, container string, err error)
	// begin does some work at the same time. Its context is not done when the run is interrupted.
	begin func(work func(ctx context.Context))
	// ended is closed when the logs are shown only as far as they are written.
	ended chan struct{}

	mu    sync.Mutex
	known map[string]int // how often a log was added that is being shown
}

// add shows a log, by a key of its own. One that is added again, since its container could not be started before, is shown
// once, as long as it is empty.
func (f *logFollower) add(pod *v1.Pod, container, key string, copyLog func(ctx context.Context, to logs.Sinks) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known[key]++; f.known[key] > 1 {
		return
	}
	f.begin(func(ctx context.Context) {
		for again, n := true, 1; again; {
			err := copyLog(ctx, logs.Sinks{Lines: func(l logs.Line) error { return f.line(pod, container, l) }})
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, cluster.ErrLogRemoved) {
				f.warn(pod, container, err)
			}
			again, n = f.again(key, n)
		}
	})
}

// again says whether a log was added again since it was added for the n-th time, and how often now.
func (f *logFollower) again(key string, n int) (bool, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.known[key]
	if now == n {
		delete(f.known, key)
	}
	return now != n, now
}

// followLogs shows the logs of the pods that the plan starts, or keeps, if that is wanted. end waits until all that was
// written is shown.
func (c *runCommand) followLogs(ctx context.Context, t target, plan admit.Plan) (end func()) {
	if !c.followFlags.wanted() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	to := c.display.Logs()
	color := c.colorsOn(c.io.StderrTerminal)
	if c.io.StderrTerminal {
		to = report.TerminalText(to, color)
	}
	p := followPrinter{linePrinter: linePrinter{to: logs.Sinks{Stdout: to, Stderr: to}, colorOut: color, colorErr: color}, index: map[string]int{}}
	f := &logFollower{
		shows: c.followFlags.shows, line: p.print, ended: make(chan struct{}), known: map[string]int{},
		warn: func(pod *v1.Pod, container string, err error) {
			c.log.Warn("could not follow a log", "pod", podspec.FullName(pod), "container", container, "error", err)
		},
		begin: func(work func(context.Context)) { all.Go(func() { work(ctx) }) },
	}
	t.follow(f, only(plan.Admitted(), f.shows))
	return func() {
		defer c.display.Wait("waiting until the logs are shown")()
		close(f.ended)
		all.Wait()
		cancel()
		c.display.Flush()
	}
}

// followPrinter prints the lines of logs that begin at any time.
type followPrinter struct {
	mu sync.Mutex
	linePrinter
	index map[string]int // of the prefix, by what it is about
}

func (p *followPrinter) print(pod *v1.Pod, container string, l logs.Line) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := podspec.FullName(pod) + "/" + container
	i, ok := p.index[key]
	if !ok {
		i = len(p.prefixes)
		p.index[key] = i
		p.label(logSource{pod: pod.Name, container: container})
	}
	return p.linePrinter.print(i, l)
}

// logCreated has the log of a container that is about to start.
func (t *nodeTarget) logCreated(pod *v1.Pod, container, path string) {
	if t.copies != nil && t.copies.wanted() {
		t.copies.created(pod, container, path)
	}
	if f := t.follower.Load(); f != nil && f.shows(pod) {
		f.add(pod, container, path, func(ctx context.Context, to logs.Sinks) error {
			return t.pods.FollowLog(ctx, pod, runtime.FollowedLog{Path: path, New: true, End: f.ended}, to, logs.Options{})
		})
	}
}

// follow shows the logs of the containers that are started from now on, and what those write from now on that run already.
func (t *nodeTarget) follow(f *logFollower, pods []*v1.Pod) {
	t.follower.Store(f)
	now := time.Now()
	for _, pod := range pods {
		f.begin(func(ctx context.Context) {
			running, err := t.pods.Processes(ctx, pod)
			if err != nil {
				f.warn(pod, "", err)
			}
			for container := range running {
				path, err := t.pods.Log(ctx, pod, container, false)
				if err != nil {
					continue // it has just ended, or is the pause process
				}
				f.add(pod, container, path, func(ctx context.Context, to logs.Sinks) error {
					return t.pods.FollowLog(ctx, pod, runtime.FollowedLog{Path: path, End: f.ended}, to, logs.Options{Since: now})
				})
			}
		})
	}
}

// lastLines is how long it may take until what a container on a cluster has written is here.
const lastLines = 500 * time.Millisecond

// follow shows the logs of the instances of containers that are started from now on.
func (t *clusterTarget) follow(f *logFollower, pods []*v1.Pod) {
	for _, pod := range pods {
		f.begin(func(ctx context.Context) {
			changes, err := t.pods.Changes(ctx, pod)
			if err != nil {
				f.warn(pod, "", err)
				return
			}
			shown := map[string]bool{}
			for last := false; ; {
				t.followContainers(ctx, f, pod, shown)
				if last {
					return
				}
				select {
				case <-changes:
				case <-f.ended:
					last = true
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// followContainers shows the logs of the instances of a pod's containers that have not been shown yet, by ID.
func (t *clusterTarget) followContainers(ctx context.Context, f *logFollower, pod *v1.Pod, shown map[string]bool) {
	st, err := t.pods.Status(ctx, pod)
	if err != nil {
		return
	}
	show := func(name, id string, started time.Time, previous bool) {
		if id == "" || shown[id] || started.Before(t.opened.Truncate(time.Second)) {
			return
		}
		shown[id] = true
		f.add(pod, name, id, func(ctx context.Context, to logs.Sinks) error {
			return t.followInstance(ctx, f, pod, logOptions{container: name, previous: previous, follow: !previous, tail: notGiven}, to)
		})
	}
	for _, cs := range podspec.Statuses(st) {
		if last := cs.LastTerminationState.Terminated; last != nil {
			show(cs.Name, last.ContainerID, last.StartedAt.Time, true)
		}
		switch state := cs.State; {
		case state.Running != nil:
			show(cs.Name, cs.ContainerID, state.Running.StartedAt.Time, false)
		case state.Terminated != nil:
			show(cs.Name, cs.ContainerID, state.Terminated.StartedAt.Time, false)
		}
	}
}

// followInstance shows a log until its container ends. When the run ends, one that still runs is not waited for.
func (t *clusterTarget) followInstance(ctx context.Context, f *logFollower, pod *v1.Pod, o logOptions, to logs.Sinks) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-f.ended:
		case <-ctx.Done():
			return
		}
		limit := copyTimeout
		if st, err := t.pods.Status(ctx, pod); err != nil || slices.ContainsFunc(podspec.Statuses(st), func(cs v1.ContainerStatus) bool {
			return cs.Name == o.container && cs.State.Running != nil
		}) {
			limit = lastLines
		}
		select {
		case <-time.After(limit):
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := t.copyLog(ctx, pod, o.container, o, to); ctx.Err() == nil {
		return err
	}
	return nil
}
