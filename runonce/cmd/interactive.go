package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
)

// interactiveFlags have the only container of a run work with the input and the output of this process.
type interactiveFlags struct{ streamFlags }

func (f *interactiveFlags) flags() []cli.Flag {
	return []cli.Flag{
		boolFlag(&f.stdin, categoryRun, "pass standard input on to the only container, and its exit code back", "stdin", "i"),
		boolFlag(&f.tty, categoryRun, "with -i, give the container a terminal", "tty", "t"),
	}
}

// checkInteractive refuses what cannot be together with -i.
func (c *runCommand) checkInteractive(args []string) error {
	switch f := c.interactiveFlags; {
	case !f.stdin && f.tty:
		return usagef("-t gives the container a terminal to work with: it needs -i")
	case !f.stdin:
		return nil
	case c.output != c.formats[0]:
		return usagef("-o %s has no meaning with -i: standard output is that of the container", c.output)
	case c.followFlags.wanted():
		return usagef("--follow-logs has no meaning with -i: standard output is that of the container")
	case slices.Contains(args, "-"):
		return usagef("-i passes standard input on to the container: it cannot have manifests as well")
	}
	return nil
}

// setTo has manifests read for a container that works with this process.
func (f *interactiveFlags) setTo(o *manifests.Options, c *console) {
	o.Stream, o.Terminal = f.stdin, f.tty && c.io.Terminal != nil
}

// choose finds the only container of the input, whose end the run waits for. It must not be restarted: no instance
// after the first one would have all of the input.
func (c *runCommand) choose(set *manifests.Set) error {
	if !c.interactiveFlags.stdin {
		return nil
	}
	if len(set.Pods) != 1 || len(set.Invalid) != 0 || len(set.Pods[0].Spec.Containers) != 1 {
		containers := 0
		for _, pod := range set.Pods {
			containers += len(pod.Spec.Containers)
		}
		return usagef("-i needs exactly one pod with one container: the input has %s with %s",
			runonce.Count(len(set.Pods)+len(set.Invalid), "pod"), runonce.Count(containers, "container"))
	}
	pod := set.Pods[0]
	if c.maxRestarts != 0 && pod.Spec.RestartPolicy != v1.RestartPolicyNever {
		return usagef("-i needs a container that is not restarted: set restartPolicy of pod %q to Never, or use --max-restarts 0", pod.Name)
	}
	c.exitCodeFrom = podspec.FullName(pod) + "/" + pod.Spec.Containers[0].Name
	c.interaction = &interaction{console: c.console, pod: pod, container: &pod.Spec.Containers[0]}
	return nil
}

// interaction has the container of a run work with the input and the output of this process.
type interaction struct {
	*console
	pod       *v1.Pod
	container *v1.Container
	// do does some work meanwhile, which end ends, as does an interrupt.
	do  func(work func(ctx context.Context))
	end func()

	mu  sync.Mutex
	now *attachment // the newest one; nil before the first one
}

// attachment takes part in an instance of the container.
type attachment struct {
	attached chan struct{} // closed when it takes part
	started  chan struct{} // closed when the instance runs
	ended    chan struct{} // closed when the attachment has ended
	err      error         // why; valid then
	// start is called when the instance runs. Nothing is read from the input before.
	start func()
}

// of says whether the interaction, which may be nil, is with the container.
func (i *interaction) of(pod *v1.Pod, container string) bool {
	return i != nil && pod.UID == i.pod.UID && container == i.container.Name
}

// prepare makes this process ready for the container, until end is called.
func (i *interaction) prepare(ctx context.Context, f streamFlags) context.Context {
	ctx, i.end = context.WithCancel(ctx)
	i.do = func(work func(context.Context)) { go work(ctx) }
	if !i.io.StderrTerminal {
		i.configureDisplay(ctx, true) // the container writes there
	}
	if f.stdin && f.tty && i.io.Terminal == nil {
		i.println(noTerminal)
	}
	return ctx
}

// newest returns the newest attachment, nil before the first one.
func (i *interaction) newest() *attachment {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.now
}

// wait waits until the container has ended, and returns why its output is not complete.
func (i *interaction) wait(ctx context.Context) error {
	a := i.newest()
	select {
	case <-a.ended:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin attaches to an instance.
func (i *interaction) begin(attach func(ctx context.Context, s engine.Streams, start func()) error) *attachment {
	a := &attachment{attached: make(chan struct{}), started: make(chan struct{}), ended: make(chan struct{})}
	leaveScreen := func() {}
	a.start = sync.OnceFunc(func() {
		leaveScreen()
		close(a.started)
	})
	i.mu.Lock()
	i.now = a
	i.mu.Unlock()
	i.do(func(ctx context.Context) {
		defer close(a.ended)
		defer i.restoreTerminal()
		s := i.streams(ctx, streamFlags{stdin: i.container.Stdin, tty: i.container.TTY && i.io.Terminal != nil})
		makeRaw := s.Started
		leaveScreen = func() {
			i.configureDisplay(ctx, true)
			if makeRaw != nil {
				makeRaw()
			}
		}
		s.Started = func() { close(a.attached) }
		if s.TTY = i.container.TTY; s.Stdin != nil {
			s.Stdin = heldBack{s.Stdin, a}
		}
		a.err = attach(ctx, s, a.start)
	})
	return a
}

// await waits until it takes part, or cannot.
func (a *attachment) await() {
	select {
	case <-a.attached:
	case <-a.ended:
	}
}

// heldBack is the input of a container that may not have started yet.
type heldBack struct {
	io.Reader
	a *attachment
}

func (r heldBack) Read(p []byte) (int, error) {
	select {
	case <-r.a.started:
		return r.Reader.Read(p)
	case <-r.a.ended:
		return 0, errors.New("the container did not start")
	}
}

// outputTimeout bounds the wait for the rest of the output of a container that has ended: processes that it has left
// may hold the output open.
const outputTimeout = 10 * time.Second

// conclude waits for the rest of the output, if the container has ended. It returns why that is not complete, and
// whether all that the container did was seen here.
func (i *interaction) conclude(ended bool) (seen bool, err error) {
	a := i.newest()
	if a == nil {
		return false, nil
	}
	if !ended {
		i.end()
	}
	select {
	case <-a.ended:
	case <-time.After(outputTimeout):
		i.end()
		<-a.ended
	}
	select {
	case <-a.started:
	default:
		return false, nil
	}
	if ended && a.err != nil {
		return false, fmt.Errorf("the output of container %q is not complete: %w", i.container.Name, a.err)
	}
	return ended, nil
}

// interact has the container of the plan take part, if that is wanted. conclude waits for the rest of its output.
func (c *runCommand) interact(ctx context.Context, t target) (conclude func([]runonce.Result)) {
	i := c.interaction
	if i == nil {
		return func([]runonce.Result) {}
	}
	ctx = i.prepare(ctx, c.streamFlags)
	t.interact(ctx, i)
	return func(results []runonce.Result) {
		_, err := report.ExitCodeFrom(results, c.exitCodeFrom)
		c.seen, c.unseen = i.conclude(err == nil)
		i.restoreTerminal()
	}
}

func (t *nodeTarget) interact(ctx context.Context, i *interaction) {
	t.interaction = i
	running, err := t.pods.Processes(ctx, i.pod)
	if err != nil {
		t.log.Warn("could not attach to the container, if it runs", "container", i.container.Name, "error", err)
	}
	if running[i.container.Name] == 0 {
		return
	}
	i.begin(func(ctx context.Context, s engine.Streams, start func()) error {
		start()
		_, err := t.pods.Attach(ctx, i.pod, i.container.Name, s)
		return err
	})
}

// created has an instance of a container that is about to start work with this process, if that is wanted.
func (t *nodeTarget) created(pod *v1.Pod, container, id string) (started func()) {
	if !t.interaction.of(pod, container) {
		return func() {}
	}
	a := t.interaction.begin(func(ctx context.Context, s engine.Streams, _ func()) error { return t.pods.AttachInstance(ctx, id, s) })
	a.await()
	return a.start
}

// interact attaches to the container when it runs: what it writes before that is in its log alone. Of one that has ended
// then, the log is shown.
func (t *clusterTarget) interact(_ context.Context, i *interaction) {
	i.begin(func(ctx context.Context, s engine.Streams, start func()) error {
		runs, err := t.awaitStart(ctx, i)
		if err != nil {
			return err
		}
		start()
		if !runs {
			return t.showLog(ctx, i, s)
		}
		return t.takePart(ctx, i, s)
	})
}

// takePart attaches to the container, which runs, or shows the log of one that has ended before it was attached to.
func (t *clusterTarget) takePart(ctx context.Context, i *interaction, s engine.Streams) error {
	var seen atomic.Bool
	own := s
	own.Stdout, own.Stderr = noticed(s.Stdout, &seen), noticed(s.Stderr, &seen)
	_, err := t.pods.Attach(ctx, i.pod, i.container.Name, own)
	if seen.Load() || ctx.Err() != nil {
		return err
	}
	if ended, lerr := t.pods.Ended(ctx, i.pod, i.container.Name); !ended {
		return cmp.Or(err, lerr)
	}
	return t.showLog(ctx, i, s)
}

// showLog copies the log of the container as if it were attached to.
func (t *clusterTarget) showLog(ctx context.Context, i *interaction, s engine.Streams) error {
	o := logOptions{container: i.container.Name, tail: notGiven}
	return t.copyLog(ctx, i.pod, i.container.Name, o, logs.Sinks{Stdout: s.Stdout, Stderr: s.Stderr})
}

// awaitStart waits until the container has been started, and says whether it still runs.
func (t *clusterTarget) awaitStart(ctx context.Context, i *interaction) (runs bool, err error) {
	changes, err := t.pods.Changes(ctx, i.pod)
	if err != nil {
		return false, err
	}
	for {
		st, err := t.pods.Status(ctx, i.pod)
		if err != nil {
			return false, err
		}
		for _, cs := range st.ContainerStatuses {
			if end := cs.State.Terminated; cs.State.Running != nil || end != nil && !end.StartedAt.Time.Before(t.opened.Truncate(time.Second)) {
				return end == nil, nil
			}
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// noticed returns a writer, nil for none, that says when anything is written.
func noticed(w io.Writer, seen *atomic.Bool) io.Writer {
	if w == nil {
		return nil
	}
	return writerFunc(func(b []byte) (int, error) {
		seen.Store(true)
		return w.Write(b)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
