package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
)

// exitOwnFailure is the exit code of commands that pass on that of a command in a container, if they have failed
// themselves, as of "docker exec". 126 and 127 say, as in a shell, that the command cannot be run or does not exist.
const exitOwnFailure = 125

// commandExit is the exit code of a command in a container.
type commandExit struct {
	code int32
	err  error // why it could not be run, nil if it has run
}

func (e commandExit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("command terminated with exit code %d", e.code)
	}
	return e.err.Error()
}

func (e commandExit) Unwrap() error { return e.err }

// execCommand is "exec".
type execCommand struct {
	*program
	containerRef
	runtime.Command
	streamFlags
	pastFlags
	env list
}

func (p *program) execCommand() *cli.Command {
	c := &execCommand{program: p}
	return p.command(cli.Command{
		Name: "exec", Usage: "run a command in a container", ArgsUsage: "[NAMESPACE/]POD -- COMMAND [ARGUMENT...]",
		Description: "The exit code is the command's: 128 more than the number of a signal that ended it, 127 if it\n" +
			"does not exist, 126 if it cannot be run, and 125 if runonce itself failed. If runonce is\n" +
			"interrupted or killed, so is the command, with what it has started.",
		Flags: []cli.Flag{
			containerFlag(&c.container),
			boolFlag(&c.stdin, "", "pass standard input on to the command", "stdin", "i"),
			boolFlag(&c.tty, "", "give the command a terminal", "tty", "t"),
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Destination: &c.User, Usage: "run as `USER` or USER:GROUP, names or numbers", DefaultText: "the container's"},
			&cli.StringFlag{Name: "workdir", Aliases: []string{"w"}, Destination: &c.Dir, Usage: "run in the directory `DIR`", DefaultText: "the container's"},
			pathsFlag(&c.env, "", "set the variable `KEY=VALUE`", "env", ""),
		},
	}, c, &c.pastFlags)
}

func (c *execCommand) run(ctx context.Context, _ []string) error {
	if err := c.parse(); err != nil {
		return err
	}
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	return c.inContainer(ctx, t, c.exec)
}

func (c *execCommand) exec(ctx context.Context, t target) (int32, error) {
	s := c.streams(ctx, c.streamFlags)
	pod, container, err := c.locate(ctx, t, c.containerRef)
	if err != nil {
		return 0, err
	}
	return t.exec(ctx, pod, container, c.Command, s)
}

// inContainer has something done in a container of the target, and the program end with the exit code of that. It closes
// the target.
func (c *console) inContainer(ctx context.Context, t target, do func(context.Context, target) (int32, error)) error {
	defer t.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.restoreTerminal()
	code, err := do(ctx, t)
	return passOn(ctx, code, err)
}

// passOn returns the error that has the program end with the exit code of what ran in a container.
func passOn(ctx context.Context, code int32, err error) error {
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return cause
	case err != nil:
		if code, ok := failure.CommandExitCode(err); ok {
			return commandExit{int32(code), err}
		}
		return err
	case code != 0:
		return commandExit{code, nil}
	}
	return nil
}

// parse takes the pod and the command from the arguments.
func (c *execCommand) parse() error {
	pod, command, err := c.podAndCommand()
	switch {
	case err != nil:
		return err
	case len(command) == 0:
		return usagef("exec needs a COMMAND: runonce exec %s -- COMMAND", pod)
	}
	c.pod, c.namespace, c.Args, c.Env = pod, c.podNamespace, command, c.env.values
	return checkEnv(c.env.values)
}

// podAndCommand returns the only argument, and the command after "--".
func (p *program) podAndCommand() (pod string, command []string, err error) {
	before, command := p.invocation.Separated()
	switch name := p.invocation.Name(); {
	case len(before) == 0:
		return "", nil, usagef("%s needs a POD", name)
	case len(before) > 1:
		return "", nil, usagef(`put "--" before the command: runonce %s %s -- %s`, name, before[0], strings.Join(slices.Concat(before[1:], command), " "))
	}
	return before[0], command, nil
}

// checkEnv refuses what is no variable.
func checkEnv(pairs []string) error {
	for _, e := range pairs {
		if key, _, ok := strings.Cut(e, "="); !ok || key == "" {
			return usagef("--env %q: must be KEY=VALUE", e)
		}
	}
	return nil
}

// exec runs the command in a container of this machine. It opens the engine only if it has to.
func (t *nodeTarget) exec(ctx context.Context, pod *v1.Pod, container string, command runtime.Command, s engine.Streams) (int32, error) {
	release := func() {}
	defer func() { release() }()
	s.Starting = func(container, id string) (err error) {
		if t.io.Guard != nil {
			release, err = t.io.Guard(t.options, container, id)
		}
		return err
	}
	if t.io.ExecRunning != nil && command.User == "" { // whose name is one of the image
		code, ok, err := t.io.ExecRunning(ctx, t.options.Options, containerd.PodContainer{PodUID: string(pod.UID), Name: container}, command.Command(), s)
		if ok {
			return code, err
		}
	}
	if err := t.connect(ctx); err != nil {
		return 0, err
	}
	begun, tell := false, s.Started
	s.Started = func() {
		begun = true
		if tell != nil {
			tell()
		}
	}
	code, err := t.pods.Exec(ctx, pod, container, command, s)
	if err != nil && begun {
		release = func() {} // it may run on: the guard ends it after this process
	}
	return code, err
}

// exec runs the command in a container of the cluster.
func (t *clusterTarget) exec(ctx context.Context, pod *v1.Pod, container string, command runtime.Command, s engine.Streams) (int32, error) {
	return t.pods.Exec(ctx, pod, container, command.Args, s)
}
