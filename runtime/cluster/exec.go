package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// Exec runs a command in a container of the pod, with streams, and returns its exit code. When ctx is done, the kubelet
// decides what becomes of the command.
func (p *Pods) Exec(ctx context.Context, pod *v1.Pod, container string, command []string, s engine.Streams) (int32, error) {
	err := p.stream(ctx, pod, "exec", url.Values{"container": {container}, "command": command}, s)
	var exit exec.CodeExitError
	switch {
	case errors.As(err, &exit):
		return int32(exit.Code), nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		return 0, fmt.Errorf("running %q in container %q of pod %q: %s", command[0], container, podspec.FullName(pod), words(err))
	}
	return 0, nil
}

// Attach takes part in the input and the output of a running container of the pod until it ends, and returns its exit
// code.
func (p *Pods) Attach(ctx context.Context, pod *v1.Pod, container string, s engine.Streams) (int32, error) {
	var there v1.Pod
	if err := p.c.get(ctx, podspec.NameOf(pod), &there); err != nil {
		return 0, errors.New(words(err))
	}
	id := containerID(&there, container)
	if id == "" {
		return 0, fmt.Errorf("container %q of pod %q is not running", container, podspec.FullName(pod))
	}
	err := p.stream(ctx, pod, "attach", url.Values{"container": {container}}, s)
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		return 0, fmt.Errorf("attaching to container %q of pod %q: %s", container, podspec.FullName(pod), words(err))
	}
	return p.awaitExit(ctx, pod, id)
}

// containerID returns the ID of the running instance of a container, "" if there is none.
func containerID(pod *v1.Pod, container string) string {
	for _, cs := range podspec.AllStatuses(pod.Status) {
		if cs.Name == container && cs.State.Running != nil {
			return cs.ContainerID
		}
	}
	return ""
}

// ExitCode returns the exit code of a container that has ended, which the kubelet may not have reported yet.
func (p *Pods) ExitCode(ctx context.Context, pod *v1.Pod, container string) (int32, error) {
	cs, err := p.containerStatus(ctx, pod, container)
	if err != nil {
		return 0, err
	}
	return p.awaitExit(ctx, pod, cs.ContainerID)
}

const (
	// exitTimeout bounds the wait until the kubelet has reported that a container has ended, and exitPeriod is how
	// often it is asked for.
	exitTimeout = 30 * time.Second
	exitPeriod  = 300 * time.Millisecond
)

// awaitExit waits until the end of an instance of a container is reported, and returns its exit code.
func (p *Pods) awaitExit(ctx context.Context, pod *v1.Pod, id string) (code int32, err error) {
	reported, err := poll(ctx, exitTimeout, func() (bool, error) {
		var there v1.Pod
		if err := p.c.get(ctx, podspec.NameOf(pod), &there); err != nil {
			return false, fmt.Errorf("waiting for the exit code of a container of pod %q: %s", podspec.FullName(pod), words(err))
		}
		for _, cs := range podspec.AllStatuses(there.Status) {
			for _, end := range []*v1.ContainerStateTerminated{cs.State.Terminated, cs.LastTerminationState.Terminated} {
				if end != nil && end.ContainerID == id {
					code = end.ExitCode
					return true, nil
				}
			}
		}
		return false, nil
	})
	if err == nil && !reported {
		err = fmt.Errorf("disconnected from pod %q, whose container still runs", podspec.FullName(pod))
	}
	return code, err
}

// poll looks until what it looks for is there, and says whether that was so within the limit.
func poll(ctx context.Context, limit time.Duration, look func() (there bool, err error)) (bool, error) {
	for deadline := time.Now().Add(limit); ; {
		if there, err := look(); err != nil || there || time.Now().After(deadline) {
			return there, err
		}
		select {
		case <-time.After(exitPeriod):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// stream connects streams with a subresource of the pod.
func (p *Pods) stream(ctx context.Context, pod *v1.Pod, subresource string, parameters url.Values, s engine.Streams) error {
	r := p.c.rest.Post().AbsPath(fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/%s", pod.Namespace, pod.Name, subresource))
	for name, values := range parameters {
		for _, value := range values {
			r = r.Param(name, value)
		}
	}
	for name, wanted := range map[string]bool{"stdin": s.Stdin != nil, "stdout": s.Stdout != nil, "stderr": s.Stderr != nil && !s.TTY, "tty": s.TTY} {
		r = r.Param(name, strconv.FormatBool(wanted))
	}
	e, err := newExecutor(p.c.config, r.URL())
	if err != nil {
		return err
	}
	if s.Started != nil {
		s.Started()
	}
	return e.StreamWithContext(ctx, streamOptions(s))
}

// newExecutor prefers WebSockets, and falls back to SPDY for servers and proxies that do not have them, as kubectl does.
func newExecutor(c *rest.Config, to *url.URL) (remotecommand.Executor, error) {
	spdy, err := remotecommand.NewSPDYExecutor(c, "POST", to)
	if err != nil {
		return nil, err
	}
	websocket, err := remotecommand.NewWebSocketExecutor(c, "GET", to.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(websocket, spdy, mayFallBack)
}

// mayFallBack says whether the error of a WebSocket is that they are not to be had.
func mayFallBack(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

func streamOptions(s engine.Streams) remotecommand.StreamOptions {
	o := remotecommand.StreamOptions{Stdin: s.Stdin, Stdout: s.Stdout, Tty: s.TTY}
	if !s.TTY {
		o.Stderr = s.Stderr
	}
	if s.Resize != nil {
		o.TerminalSizeQueue = sizes(s.Resize)
	}
	return o
}

// sizes are those of a terminal.
type sizes <-chan engine.Size

// Next returns the next size, nil if there is none any more.
func (q sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-q
	if !ok {
		return nil
	}
	return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
}
