package cmd

import (
	"context"
	"fmt"
	"sync"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// streamFlags say what a process in a container has of the input of this one.
type streamFlags struct{ stdin, tty bool }

const noTerminal = "Unable to use a TTY: input is not a terminal"

// streams returns the streams for a process in a container, which are those of this process, and its terminal, which is
// set up once the other process runs. The caller calls restoreTerminal when that has ended.
func (c *console) streams(ctx context.Context, f streamFlags) engine.Streams {
	s := engine.Streams{Stdout: c.data.Stdout, Stderr: c.data.Stderr, TTY: f.tty}
	if f.stdin {
		s.Stdin = c.io.Stdin
	}
	if f.tty && f.stdin && c.io.Terminal == nil {
		c.println(noTerminal)
		s.TTY = false
	}
	if !s.TTY || c.io.Terminal == nil {
		return s
	}
	s.Size, s.Resize = c.io.Terminal.Size(), c.io.Terminal.Sizes(ctx)
	if f.stdin {
		s.Started = func() { c.makeRaw(ctx) }
	}
	return s
}

// makeRaw has everything that is typed go to the other process.
func (c *console) makeRaw(ctx context.Context) {
	restore, err := c.io.Terminal.Raw()
	if err != nil {
		c.log.WarnContext(ctx, "could not set up the terminal", "error", err)
		return
	}
	restore = sync.OnceFunc(restore)
	c.restore.Store(&restore)
}

// restoreTerminal undoes makeRaw. It may be called always.
func (c *console) restoreTerminal() {
	if restore := c.restore.Load(); restore != nil {
		(*restore)()
	}
}

// attachCommand is "attach".
type attachCommand struct {
	*program
	containerRef
	streamFlags
	pastFlags
}

func (p *program) attachCommand() *cli.Command {
	c := &attachCommand{program: p}
	return p.command(cli.Command{
		Name: "attach", Usage: "take part in the input and output of a container", ArgsUsage: "[NAMESPACE/]POD",
		Description: "It ends with the container and has its exit code, or 125 if runonce itself failed. The container\n" +
			"needs \"stdin: true\" for an input, and \"tty: true\" for a terminal. If runonce is interrupted or\n" +
			"killed, the container goes on, unless \"stdinOnce: true\" ends its input.",
		Flags: []cli.Flag{
			containerFlag(&c.container),
			boolFlag(&c.stdin, "", "pass standard input on to the container", "stdin", "i"),
			boolFlag(&c.tty, "", "use the terminal of the container", "tty", "t"),
		},
	}, c, &c.pastFlags)
}

func (c *attachCommand) run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return usagef("attach needs exactly one POD, got %d", len(args))
	}
	c.pod, c.namespace = args[0], c.podNamespace
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	return c.inContainer(ctx, t, c.attach)
}

func (c *attachCommand) attach(ctx context.Context, t target) (int32, error) {
	pod, container, err := c.locate(ctx, t, c.containerRef)
	if err != nil {
		return 0, err
	}
	s, err := c.streamsOf(ctx, podspec.Container(pod, container))
	if err != nil {
		return 0, err
	}
	return t.attach(ctx, pod, container, s)
}

// streamsOf returns the streams for a container that is attached to.
func (c *attachCommand) streamsOf(ctx context.Context, container *v1.Container) (engine.Streams, error) {
	f := c.streamFlags
	if f.stdin && !container.Stdin {
		return engine.Streams{}, usagef(`container %q has no input: it needs "stdin: true"`, container.Name)
	}
	if f.tty && !container.TTY {
		c.println(fmt.Sprintf("Unable to use a TTY - container %s did not allocate one", container.Name))
	}
	f.tty = container.TTY && (f.tty || c.io.Terminal != nil)
	s := c.streams(ctx, f)
	s.TTY = container.TTY // which does not depend on us
	return s, nil
}

// attach attaches to a container of this machine.
func (t *nodeTarget) attach(ctx context.Context, pod *v1.Pod, container string, s engine.Streams) (int32, error) {
	if err := t.connect(ctx); err != nil {
		return 0, err
	}
	return t.pods.Attach(ctx, pod, container, s)
}

// attach attaches to a container of the cluster.
func (t *clusterTarget) attach(ctx context.Context, pod *v1.Pod, container string, s engine.Streams) (int32, error) {
	return t.pods.Attach(ctx, pod, container, s)
}
