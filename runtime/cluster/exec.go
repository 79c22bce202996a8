package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

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
	r := p.c.rest.Post().AbsPath(fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/exec", pod.Namespace, pod.Name)).Param("container", container)
	for _, arg := range command {
		r = r.Param("command", arg)
	}
	for name, wanted := range map[string]bool{"stdin": s.Stdin != nil, "stdout": s.Stdout != nil, "stderr": s.Stderr != nil && !s.TTY, "tty": s.TTY} {
		r = r.Param(name, strconv.FormatBool(wanted))
	}
	e, err := newExecutor(p.c.config, r.URL())
	if err == nil {
		if s.Started != nil {
			s.Started()
		}
		err = e.StreamWithContext(ctx, streamOptions(s))
	}
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
