package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/provider"
)

// The types of virtual-kubelet's handlers, word for word (node/api).
type (
	containerLogOpts struct {
		Tail         int
		LimitBytes   int
		Timestamps   bool
		Follow       bool
		Previous     bool
		SinceSeconds int
		SinceTime    time.Time
	}
	attachIO interface {
		Stdin() io.Reader
		Stdout() io.WriteCloser
		Stderr() io.WriteCloser
		TTY() bool
		Resize() <-chan termSize
	}
	termSize struct {
		Width  uint16
		Height uint16
	}
	containerLogsHandlerFunc   func(ctx context.Context, namespace, podName, containerName string, opts containerLogOpts) (io.ReadCloser, error)
	containerExecHandlerFunc   func(ctx context.Context, namespace, podName, containerName string, cmd []string, attach attachIO) error
	containerAttachHandlerFunc func(ctx context.Context, namespace, podName, containerName string, attach attachIO) error
	portForwardHandlerFunc     func(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error
)

// handlers are the provider's methods as virtual-kubelet's handlers.
type handlers struct {
	logs    containerLogsHandlerFunc
	exec    containerExecHandlerFunc
	attach  containerAttachHandlerFunc
	forward portForwardHandlerFunc
}

func handlersOf(p *provider.Provider) handlers {
	return handlers{
		logs: func(ctx context.Context, namespace, pod, container string, o containerLogOpts) (io.ReadCloser, error) {
			return p.GetContainerLogs(ctx, namespace, pod, container, provider.LogOptions(o))
		},
		exec: func(ctx context.Context, namespace, pod, container string, command []string, a attachIO) error {
			return p.RunInContainer(ctx, namespace, pod, container, provider.Command{Args: command, Streams: provider.Streams(ctx, a)})
		},
		attach: func(ctx context.Context, namespace, pod, container string, a attachIO) error {
			return p.AttachToContainer(ctx, namespace, pod, container, provider.Streams(ctx, a))
		},
		forward: p.PortForward,
	}
}

// terminal is one side of a stream.
type terminal struct {
	in     io.Reader
	out    bytes.Buffer
	tty    bool
	resize chan termSize
}

func (a *terminal) Stdin() io.Reader        { return a.in }
func (a *terminal) Stdout() io.WriteCloser  { return closer{&a.out} }
func (a *terminal) Stderr() io.WriteCloser  { return nil }
func (a *terminal) TTY() bool               { return a.tty }
func (a *terminal) Resize() <-chan termSize { return a.resize }

type closer struct{ io.Writer }

func (closer) Close() error { return nil }

// TestLogs: what virtual-kubelet asks of a log.
func TestLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.provider(t.Context(), t)
		get := handlersOf(p).logs
		read := func(o containerLogOpts) string {
			r, err := get(t.Context(), "default", "web", "main", o)
			if err != nil {
				return err.Error()
			}
			text, err := io.ReadAll(r)
			must(t, errors.Join(err, r.Close()))
			return string(text)
		}
		want(t, "of no pod", read(containerLogOpts{}), `pod "web" in namespace "default" not found`)
		create(t, p, newPod("web", v1.RestartPolicyAlways, "stay"))
		want(t, "previous", read(containerLogOpts{Previous: true}), `previous terminated container "main" in pod "default/web" not found`)
		time.Sleep(time.Minute)
		want(t, "all", read(containerLogOpts{}), "deaf from now on\n")
		want(t, "limited", read(containerLogOpts{LimitBytes: 4}), "deaf")
		want(t, "recent", read(containerLogOpts{SinceSeconds: 10}), "")
		if text := read(containerLogOpts{Timestamps: true}); !strings.HasPrefix(text, "2000-01-01T") {
			t.Errorf("with time: %q", text)
		}
		n.crash(t)
		time.Sleep(time.Minute)
		want(t, "of the one before", read(containerLogOpts{Previous: true}), "deaf from now on\n")
		_, err := get(t.Context(), "default", "web", "none", containerLogOpts{})
		want(t, "of no container", err.Error(), `container "none" is not valid for pod "default/web"`)
	})
}

// TestExec: streams and exit codes of commands, and what cannot be attached.
func TestExec(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newNode(t).provider(t.Context(), t)
		h := handlersOf(p)
		create(t, p, newPod("web", v1.RestartPolicyAlways, "sleep"))
		a := &terminal{in: strings.NewReader("in ")}
		must(t, h.exec(t.Context(), "default", "web", "main", []string{"box", "echo", "hello"}, a))
		want(t, "output", a.out.String(), "in hello")
		err := h.exec(t.Context(), "default", "web", "main", []string{"box", "exit", "7"}, &terminal{})
		// The interface of k8s.io/utils/exec.
		var exit interface {
			String() string
			Error() string
			Exited() bool
			ExitStatus() int
		}
		if !errors.As(err, &exit) || !exit.Exited() || exit.ExitStatus() != 7 {
			t.Errorf("exit code: %v", err)
		}
		if err := h.exec(t.Context(), "default", "web", "none", []string{"box"}, &terminal{}); err == nil {
			t.Error("no error of an absent container")
		}
		err = h.attach(t.Context(), "default", "web", "main", &terminal{in: strings.NewReader("")})
		var invalid interface{ InvalidInput() bool }
		if !errors.As(err, &invalid) {
			t.Errorf("attaching the input: %v", err)
		}
	})
}

// TestTerminalSize: sizes are passed on as long as the command runs.
func TestTerminalSize(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	a := &terminal{tty: true, resize: make(chan termSize)}
	s := provider.Streams[termSize](ctx, a)
	for _, size := range []termSize{{80, 25}, {132, 43}} {
		a.resize <- size
		want(t, "size", <-s.Resize, engine.Size(size))
	}
	cancel()
	if s := provider.Streams[termSize](t.Context(), &terminal{}); s.Resize != nil || s.Stderr != nil || s.Stdin != nil {
		t.Errorf("%+v", s)
	}
}

// TestFollow: a log can be followed, and what a container writes be attached, until it ends. Not on
// a clock of its own: new lines are found by the kernel's events.
func TestFollow(t *testing.T) {
	t.Parallel()
	n, ctx := nodeIn(t.TempDir()), t.Context()
	p := n.provider(ctx, t)
	web := newPod("web", v1.RestartPolicyNever, "stay")
	must(t, p.CreatePod(ctx, web))
	var r io.ReadCloser
	err := errors.New("not asked")
	for err != nil {
		time.Sleep(10 * time.Millisecond)
		r, err = handlersOf(p).logs(ctx, "default", "web", "main", containerLogOpts{Follow: true})
	}
	a, attached := &terminal{}, make(chan error, 1)
	go func() { attached <- handlersOf(p).attach(ctx, "default", "web", "main", a) }()
	line := make([]byte, 100)
	count, err := r.Read(line)
	must(t, err)
	want(t, "while it runs", string(line[:count]), "deaf from now on\n")
	n.crash(t)
	rest, err := io.ReadAll(r)
	must(t, errors.Join(err, r.Close(), <-attached))
	want(t, "after that", string(rest), "")
	remove(t, p, web)
}

// events are those of the pods, as "pod type reason".
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) record(pod *v1.Pod, eventType, reason, _ string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf("%s %s %s", pod.Name, eventType, reason))
}

func (e *events) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// TestEvents: what happens to pods is told in the kubelet's words.
func TestEvents(t *testing.T) {
	t.Parallel()
	secret := []v1.Volume{{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "none"}}}}
	for name, tc := range map[string]struct {
		change func(n *node, pod *v1.Pod)
		want   []string
	}{
		"life":    {func(*node, *v1.Pod) {}, []string{"Normal Pulled", "Normal Started", "Normal Killing"}},
		"crashes": {func(_ *node, pod *v1.Pod) { pod.Spec.Containers[0].Args = []string{"exit", "1"} }, []string{"Normal Pulled", "Normal Started", "Warning BackOff"}},
		"pull": {func(n *node, pod *v1.Pod) {
			n.engine.Registry = map[string]engine.Image{"localhost/new:1": {Ref: "localhost/new:1", Entrypoint: []string{"/bin/box"}}}
			pod.Spec.Containers[0].Image = "localhost/new:1"
		}, []string{"Normal Pulling", "Normal Pulled", "Normal Started", "Normal Killing"}},
		"no image": {func(_ *node, pod *v1.Pod) { pod.Spec.Containers[0].Image = "localhost/none:1" }, []string{"Normal Pulling", "Warning Failed"}},
		"volume":   {func(_ *node, pod *v1.Pod) { pod.Spec.Volumes = secret }, []string{"Warning FailedMount"}},
		"network": {func(n *node, _ *v1.Pod) {
			n.sandboxes.Err = func(*v1.Pod) error { return errors.New("no address") }
		}, []string{"Warning FailedCreatePodSandBox"}},
		"probe": {func(n *node, pod *v1.Pod) {
			n.engine.Program = func(engine.ContainerConfig) enginetest.Behavior {
				return enginetest.Behavior{Runs: true, Exec: func([]string) engine.ExecResult { return engine.ExecResult{ExitCode: 1} }}
			}
			pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{
				ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}},
				PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1,
			}
		}, []string{"Normal Pulled", "Normal Started", "Warning Unhealthy", "Normal Killing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.provider(t.Context(), t)
				pod := newPod("web", v1.RestartPolicyAlways, "sleep")
				tc.change(n, pod)
				must(t, p.CreatePod(t.Context(), pod))
				time.Sleep(time.Minute)
				remove(t, p, pod)
				var got []string
				for _, e := range n.events.list() {
					if e = strings.TrimPrefix(e, "web "); !slices.Contains(got, e) {
						got = append(got, e)
					}
				}
				want(t, "events", got, tc.want)
			})
		})
	}
}
