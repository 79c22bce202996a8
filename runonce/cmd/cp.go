package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/files"
)

// standardStream stands for an archive on standard input or output.
const standardStream = "-"

// cpCommand is "cp".
type cpCommand struct {
	*program
	pastFlags
	container string // "" for the one that kubectl chooses
}

// containerPath is a path in a container, or on this machine if it names no pod.
type containerPath struct {
	pod  string // a reference
	path string
}

func (p *program) cpCommand() *cli.Command {
	c := &cpCommand{program: p}
	return p.command(cli.Command{
		Name: "cp", Usage: "copy files from or to a container", ArgsUsage: "[[NAMESPACE/]POD:]PATH [[NAMESPACE/]POD:]PATH",
		Description: "Copies like \"docker cp\": into the target if that is a directory, else to it. A source that\n" +
			"ends in /. stands for the contents of a directory. Paths in containers begin at their root\n" +
			"directory. A container may have ended, and its image needs no programs; on a cluster it must\n" +
			"run and have tar. \"-\" is a tar archive on standard input or output. A file of this machine with\n" +
			"a colon in its name is written with a directory: ./a:b.",
		Flags: []cli.Flag{containerFlag(&c.container)},
	}, c, &c.pastFlags)
}

// parsePath parses [[NAMESPACE/]POD:]PATH as "docker cp" does: what begins with a slash or a dot is a path of this
// machine.
func parsePath(arg string) (containerPath, error) {
	pod, path, ok := strings.Cut(arg, ":")
	switch {
	case arg == "":
		return containerPath{}, usagef("cp needs two paths that are not empty")
	case !ok || strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "."):
		return containerPath{path: arg}, nil
	case pod == "":
		return containerPath{}, usagef("%q: a POD is missing before the colon; if this is a file of this machine, write %q", arg, "./"+arg)
	case path == "":
		return containerPath{}, usagef("%q: a PATH is missing after the colon, such as / for the root directory", arg)
	case strings.Contains(arg, "\x00"):
		return containerPath{}, usagef("%q: a path has no zero bytes", arg)
	}
	return containerPath{pod: pod, path: path}, nil
}

func (p containerPath) String() string {
	if p.pod == "" {
		return p.path
	}
	return p.pod + ":" + p.path
}

// parsePaths parses the arguments of the command.
func parsePaths(args []string) (from, to containerPath, err error) {
	if len(args) != 2 {
		return from, to, usagef("cp needs a source and a target: runonce cp POD:PATH PATH, or runonce cp PATH POD:PATH")
	}
	if from, err = parsePath(args[0]); err == nil {
		to, err = parsePath(args[1])
	}
	if err == nil && from.pod == "" && to.pod == "" {
		err = usagef("none of the paths is in a container: write it as POD:PATH")
	}
	return from, to, err
}

func (c *cpCommand) run(ctx context.Context, args []string) error {
	from, to, err := parsePaths(args)
	if err != nil {
		return err
	}
	if to == (containerPath{path: standardStream}) && c.io.StdoutTerminal {
		return usagef("refusing to write an archive to the terminal: redirect the output")
	}
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	defer t.close()
	source, release, err := c.source(ctx, t, from)
	if err != nil {
		return err
	}
	defer release()
	target, release, err := c.target(ctx, t, to)
	if err != nil {
		return err
	}
	defer release()
	err = c.copy(ctx, source, target, from)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return copyError(from, to, err)
}

// copyError says what could not be copied.
func copyError(from, to containerPath, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.EROFS) && to.pod != "" {
		err = fmt.Errorf("%w: the container cannot write there either", err)
	} else {
		err = failure.WithAdvice(err)
	}
	return fmt.Errorf("copying %q to %q: %w", from, to, err)
}

// source returns from where files are copied.
func (c *cpCommand) source(ctx context.Context, t target, from containerPath) (files.Source, func(), error) {
	switch {
	case from.pod != "":
		return c.inContainer(ctx, t, from, false)
	case from.path != standardStream:
		return files.Local().Path(from.path), func() {}, nil
	case c.io.Stdin == nil:
		return nil, nil, usagef("there is no standard input")
	}
	r, w := io.Pipe() // a read of standard input cannot be interrupted
	go func() {
		_, err := io.Copy(w, c.io.Stdin)
		_ = w.CloseWithError(err)
	}()
	stop := context.AfterFunc(ctx, func() { _ = r.CloseWithError(context.Cause(ctx)) })
	return &files.Archive{R: r}, func() {
		stop()
		_ = r.Close()
	}, nil
}

// target returns where files are copied to.
func (c *cpCommand) target(ctx context.Context, t target, to containerPath) (files.Target, func(), error) {
	switch {
	case to.pod != "":
		return c.inContainer(ctx, t, to, true)
	case to.path == standardStream:
		return files.Stream{W: c.data.Stdout}, func() {}, nil
	}
	return files.Local().Path(to.path), func() {}, nil
}

// copy copies files, and shows how far it is.
func (c *cpCommand) copy(ctx context.Context, source files.Source, target files.Target, from containerPath) error {
	o := files.Options{Skipped: func(name, why string) {
		c.log.WarnContext(ctx, "left out what cannot be copied", "file", name, "reason", "it is "+why)
	}}
	report := c.display.OnTransfer()
	now := engine.Transfer{Step: engine.Copying, Name: fmt.Sprintf("%q", from)}
	if report != nil {
		o.Progress = func(done, total int64) {
			now.Done, now.Total = done, total
			report(now)
		}
	}
	err := files.Copy(ctx, source, target, o)
	if now.Done > 0 {
		now.Ended, now.Err = true, err
		report(now)
	}
	return err
}

// inContainer returns a path in a container, which is released when the copy has ended. write says that something is
// copied to it.
func (c *cpCommand) inContainer(ctx context.Context, t target, at containerPath, write bool) (files.Place, func(), error) {
	pod, container, err := c.locate(ctx, t, containerRef{at.pod, c.podNamespace, c.container})
	if err != nil {
		return nil, nil, err
	}
	return t.files(ctx, pod, container, at.path, write)
}

// files opens the files of a container of this machine.
func (t *nodeTarget) files(ctx context.Context, pod *v1.Pod, container, path string, write bool) (files.Place, func(), error) {
	if err := t.connect(ctx); err != nil {
		return nil, nil, err
	}
	opened, err := t.pods.Files(ctx, pod, container, write)
	if err != nil {
		return nil, nil, err
	}
	tree, err := files.Container(opened)
	if err != nil {
		return nil, nil, err
	}
	return tree.Path(path), func() {
		tree.Close()
		if err := opened.Close(); err != nil {
			t.log.Warn("could not close the files of a container", "error", err)
		}
	}, nil
}

// files returns a path in a container of the cluster.
func (t *clusterTarget) files(_ context.Context, pod *v1.Pod, container, path string, _ bool) (files.Place, func(), error) {
	return t.pods.FilePath(pod, container, path), func() {}, nil
}
