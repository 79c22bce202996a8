package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/probe"
)

// Command is one that runs in a container, besides what the container runs.
type Command struct {
	Args []string
	Env  []string // more variables, as KEY=VALUE
	Dir  string   // "" for the container's
	User string   // USER[:GROUP], names of the image or numbers; "" for the container's
}

// Command returns the command for an engine, without the user.
func (c Command) Command() engine.Command {
	return engine.Command{Args: c.Args, Env: c.Env, Dir: c.Dir}
}

// Exec runs a command in a running container of the pod, and returns its exit code.
func (p *Pods) Exec(ctx context.Context, pod *v1.Pod, container string, c Command, s engine.Streams) (int32, error) {
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return 0, err
	}
	at := obs.Containers[container]
	if at.State != engine.StateRunning {
		return 0, fmt.Errorf("container %q of pod %q is not running", container, podspec.FullName(pod))
	}
	command := c.Command()
	if c.User != "" {
		image, err := p.o.Engine.Image(ctx, at.Image)
		if err != nil {
			return 0, fmt.Errorf("looking for user %q: %w", c.User, err)
		}
		user, err := ocispec.CommandUser(image, c.User)
		if err != nil {
			return 0, err
		}
		command.User = &user
	}
	return p.o.Engine.ExecStreams(ctx, at.ID, command, s)
}

// Attach takes part in the input and the output of a running container of the pod until it ends, and returns its exit
// code. The output of one that has neither an input nor a terminal is that of its log, from now on.
func (p *Pods) Attach(ctx context.Context, pod *v1.Pod, container string, s engine.Streams) (int32, error) {
	changes, err := p.Changes(ctx, pod) // none may be missed
	if err != nil {
		return 0, err
	}
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return 0, err
	}
	at, spec := obs.Containers[container], podspec.Container(obs.Pod, container)
	switch {
	case at.State != engine.StateRunning || spec == nil:
		err = fmt.Errorf("container %q of pod %q is not running", container, podspec.FullName(pod))
	case spec.Stdin || spec.TTY:
		err = p.o.Engine.Attach(ctx, at.ID, s)
	default:
		err = p.FollowLog(ctx, pod, FollowedLog{Path: at.LogPath}, logs.Sinks{Stdout: s.Stdout, Stderr: s.Stderr}, logs.Options{Since: time.Now()})
	}
	if err != nil {
		return 0, err
	}
	return p.awaitExit(ctx, pod, at.ID, changes)
}

// ExitCode waits until the newest instance of a container of the pod has ended, and returns its exit code.
func (p *Pods) ExitCode(ctx context.Context, pod *v1.Pod, container string) (int32, error) {
	changes, err := p.Changes(ctx, pod) // none may be missed
	if err != nil {
		return 0, err
	}
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return 0, err
	}
	return p.awaitExit(ctx, pod, obs.Containers[container].ID, changes)
}

// AttachInstance takes part in the input and the output of an instance of a container, which may be about to start,
// until its output ends.
func (p *Pods) AttachInstance(ctx context.Context, id string, s engine.Streams) error {
	return p.o.Engine.Attach(ctx, id, s)
}

// awaitExit waits for the end of an instance of a container, and returns its exit code.
func (p *Pods) awaitExit(ctx context.Context, pod *v1.Pod, id string, changes <-chan struct{}) (int32, error) {
	for {
		all, err := p.o.Engine.Containers(ctx, string(pod.UID))
		if err != nil {
			return 0, err
		}
		there := false
		for _, c := range all {
			switch {
			case c.ID == id && c.State == engine.StateExited:
				return c.Exit.ExitCode, nil
			case c.Last != nil && c.Last.ContainerID == id:
				return c.Last.ExitCode, nil
			}
			there = there || c.ID == id
		}
		if !there {
			return 0, fmt.Errorf("container %q of pod %q was removed before its exit code was known", id, podspec.FullName(pod))
		}
		select {
		case <-changes:
		case <-time.After(logInterval):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// Files opens the file system of the newest instance of a container of the pod, which may have ended. The caller closes
// it.
func (p *Pods) Files(ctx context.Context, pod *v1.Pod, container string, write bool) (engine.Files, error) {
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return engine.Files{}, err
	}
	at, ok := obs.Containers[container]
	if !ok || at.State == engine.StateCreated {
		return engine.Files{}, fmt.Errorf("container %q of pod %q has not been started", container, podspec.FullName(pod))
	}
	return p.o.Engine.Files(ctx, at.ID, write)
}

// Processes returns the IDs of the first processes of the pod's running containers, by the names of the
// containers.
func (p *Pods) Processes(ctx context.Context, pod *v1.Pod) (map[string]int, error) {
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	pids := map[string]int{}
	for _, c := range all {
		if c.State == engine.StateRunning && c.PID != 0 {
			pids[c.Name] = c.PID
		}
	}
	return pids, err
}

// Log returns the path of the log of a container's newest instance, or of the one before.
func (p *Pods) Log(ctx context.Context, pod *v1.Pod, container string, previous bool) (string, error) {
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return "", err
	}
	c, ok := obs.Containers[container]
	switch {
	case podspec.Container(obs.Pod, container) == nil:
		return "", fmt.Errorf("container %q is not valid for pod %q", container, podspec.FullName(pod))
	case !ok || c.LogPath == "":
		return "", fmt.Errorf("container %q in pod %q is waiting to start", container, podspec.FullName(pod))
	case !previous:
		return c.LogPath, nil
	case c.Last == nil || c.Last.LogPath == "":
		return "", fmt.Errorf("previous terminated container %q in pod %q not found", container, podspec.FullName(pod))
	}
	return c.Last.LogPath, nil
}

// logInterval is how often a container is looked at without an event: a start that fails is none.
const logInterval = 10 * time.Second

// FollowedLog is a log that is followed.
type FollowedLog struct {
	Path string
	// New says that the container is about to be created: the log has not ended before that.
	New bool
	// End, if it is not nil, ends the following when it is closed.
	End <-chan struct{}
}

// FollowLog copies a log of the pod as logs.Follow does until no container writes to it, or to what there is at its End.
// Where it cannot be known who writes to it, it follows the log until ctx is done.
func (p *Pods) FollowLog(ctx context.Context, pod *v1.Pod, f FollowedLog, to logs.Sinks, o logs.Options) error {
	ended := make(chan struct{})
	var watch sync.WaitGroup
	defer watch.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch.Go(func() {
		if err := p.awaitLogEnd(ctx, pod, f); err == nil {
			close(ended)
		} else if ctx.Err() == nil {
			p.o.Log.InfoContext(ctx, "could not watch the container; following its log until interrupted", "error", err)
		}
	})
	return logs.Follow(ctx, f.Path, to, o, ended)
}

// awaitLogEnd waits until no container of the pod writes to the log any more.
func (p *Pods) awaitLogEnd(ctx context.Context, pod *v1.Pod, f FollowedLog) error {
	changes, err := p.Changes(ctx, pod)
	if err != nil {
		return err
	}
	for {
		writer, err := p.logWriter(ctx, pod, f.Path)
		switch used := writer.State == engine.StateRunning || writer.State == engine.StateCreated; {
		case err != nil:
			return err
		case !used && (!f.New || writer.State != ""):
			return nil
		case used:
			f.New = false
		}
		select {
		case _, open := <-changes:
			if !open {
				return context.Cause(ctx)
			}
		case <-f.End:
			return nil
		case <-time.After(logInterval):
		}
	}
}

// Dial connects to a port of the pod as DialSandbox does.
func (p *Pods) Dial(ctx context.Context, pod *v1.Pod, port int32) (net.Conn, error) {
	sandbox, err := p.o.Sandboxes.Get(ctx, pod)
	if err != nil {
		return nil, err
	}
	return DialSandbox(ctx, sandbox, port)
}

// DialSandbox connects to a port from inside the network namespace of a sandbox: on its loopback interface, else on
// its addresses.
func DialSandbox(ctx context.Context, sandbox engine.Sandbox, port int32) (net.Conn, error) {
	var errs []error
	for _, ip := range append([]string{"127.0.0.1", "::1"}, sandbox.IPs...) {
		conn, err := probe.Dial(ctx, sandbox.NetNS, "tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
