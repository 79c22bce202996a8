package provider_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/exec"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// terminal is one side of a stream.
type terminal struct {
	in     io.Reader
	out    bytes.Buffer
	tty    bool
	resize chan api.TermSize
}

func (a *terminal) Stdin() io.Reader            { return a.in }
func (a *terminal) Stdout() io.WriteCloser      { return closer{&a.out} }
func (a *terminal) Stderr() io.WriteCloser      { return nil }
func (a *terminal) TTY() bool                   { return a.tty }
func (a *terminal) Resize() <-chan api.TermSize { return a.resize }

type closer struct{ io.Writer }

func (closer) Close() error { return nil }

// TestLogs: what virtual-kubelet asks of a log.
func TestLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.provider(t.Context(), t)
		get := p.GetContainerLogs
		read := func(o api.ContainerLogOpts) string {
			r, err := get(t.Context(), "default", "web", "main", o)
			if err != nil {
				return err.Error()
			}
			text, err := io.ReadAll(r)
			must(t, errors.Join(err, r.Close()))
			return string(text)
		}
		want(t, "of no pod", read(api.ContainerLogOpts{}), `pod "web" in namespace "default" not found`)
		create(t, p, newPod("web", v1.RestartPolicyAlways, "stay"))
		want(t, "previous", read(api.ContainerLogOpts{Previous: true}), `previous terminated container "main" in pod "default/web" not found`)
		time.Sleep(time.Minute)
		want(t, "all", read(api.ContainerLogOpts{}), "deaf from now on\n")
		want(t, "limited", read(api.ContainerLogOpts{LimitBytes: 4}), "deaf")
		want(t, "recent", read(api.ContainerLogOpts{SinceSeconds: 10}), "")
		if text := read(api.ContainerLogOpts{Timestamps: true}); !strings.HasPrefix(text, "2000-01-01T") {
			t.Errorf("with time: %q", text)
		}
		n.crash(t)
		time.Sleep(time.Minute)
		want(t, "of the one before", read(api.ContainerLogOpts{Previous: true}), "deaf from now on\n")
		_, err := get(t.Context(), "default", "web", "none", api.ContainerLogOpts{})
		want(t, "of no container", err.Error(), `container "none" is not valid for pod "default/web"`)
	})
}

// TestExec: streams and exit codes of commands, and of containers that are attached to.
func TestExec(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newNode(t).provider(t.Context(), t)
		h := p.Handlers(nil)
		create(t, p, newPod("web", v1.RestartPolicyAlways, "sleep"))
		a := &terminal{in: strings.NewReader("in ")}
		must(t, h.RunInContainer(t.Context(), "default", "web", "main", []string{"box", "echo", "hello"}, a))
		want(t, "output", a.out.String(), "in hello")
		err := h.RunInContainer(t.Context(), "default", "web", "main", []string{"box", "exit", "7"}, &terminal{})
		var exit exec.ExitError
		if !errors.As(err, &exit) || !exit.Exited() || exit.ExitStatus() != 7 {
			t.Errorf("exit code: %v", err)
		}
		if err := h.RunInContainer(t.Context(), "default", "web", "none", []string{"box"}, &terminal{}); err == nil {
			t.Error("no error of an absent container")
		}
		reads := newPod("reads", v1.RestartPolicyNever, "listen")
		reads.Spec.Containers[0].Stdin, reads.Spec.Containers[0].StdinOnce = true, true
		create(t, p, reads)
		a = &terminal{in: strings.NewReader("hello")}
		must(t, h.AttachToContainer(t.Context(), "default", "reads", "main", a))
		want(t, "what came back", a.out.String(), "hello")
	})
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
		r, err = p.GetContainerLogs(ctx, "default", "web", "main", api.ContainerLogOpts{Follow: true})
	}
	line := make([]byte, 100)
	count, err := r.Read(line)
	must(t, err)
	want(t, "while it runs", string(line[:count]), "deaf from now on\n")
	output, to := io.Pipe()
	attached := make(chan error, 1)
	go func() {
		err := p.AttachToContainer(ctx, "default", "web", "main", &piped{to: to})
		attached <- errors.Join(err, to.Close())
	}()
	n.chatter(t, output)
	n.crash(t)
	rest, err := io.ReadAll(r)
	must(t, errors.Join(err, r.Close(), <-attached))
	want(t, "after that", strings.ReplaceAll(string(rest), "again\n", ""), "")
	remove(t, p, web)
}

// piped is an output that is read as it comes.
type piped struct {
	terminal
	to *io.PipeWriter
}

func (p *piped) Stdout() io.WriteCloser { return p.to }

// chatter has the only container write lines until one of them is in the output, and goes on reading that.
func (n *fakeNode) chatter(t *testing.T, output io.Reader) {
	t.Helper()
	all, err := n.engine.Containers(t.Context(), "")
	must(t, err)
	log, err := os.OpenFile(all[0].LogPath, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	defer func() { must(t, log.Close()) }()
	read := make(chan struct{})
	go func() {
		_, err := output.Read(make([]byte, 100))
		close(read)
		for err == nil {
			_, err = output.Read(make([]byte, 100))
		}
	}()
	for {
		_, err := fmt.Fprintf(log, "%s stdout F again\n", time.Now().Format(time.RFC3339Nano))
		must(t, err)
		select {
		case <-read:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// events are those of the pods, as "pod type reason".
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) record(pod *v1.Pod, what podevent.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf("%s %s %s", pod.Name, what.Type, what.Reason))
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
		change func(n *fakeNode, pod *v1.Pod)
		want   []string
	}{
		"life":    {func(*fakeNode, *v1.Pod) {}, []string{"Normal Pulled", "Normal Created", "Normal Started", "Normal Killing"}},
		"crashes": {func(_ *fakeNode, pod *v1.Pod) { pod.Spec.Containers[0].Args = []string{"exit", "1"} }, []string{"Normal Pulled", "Normal Created", "Normal Started", "Warning BackOff"}},
		"pull": {func(n *fakeNode, pod *v1.Pod) {
			n.engine.Registry = map[string]engine.Image{"localhost/new:1": {Ref: "localhost/new:1", Entrypoint: []string{"/bin/box"}}}
			pod.Spec.Containers[0].Image = "localhost/new:1"
		}, []string{"Normal Pulling", "Normal Pulled", "Normal Created", "Normal Started", "Normal Killing"}},
		"no image": {func(_ *fakeNode, pod *v1.Pod) { pod.Spec.Containers[0].Image = "localhost/none:1" }, []string{"Normal Pulling", "Warning Failed"}},
		"volume":   {func(_ *fakeNode, pod *v1.Pod) { pod.Spec.Volumes = secret }, []string{"Warning FailedMount"}},
		"network": {func(n *fakeNode, _ *v1.Pod) {
			n.sandboxes.Err = func(*v1.Pod) error { return errors.New("no address") }
		}, []string{"Warning FailedCreatePodSandBox"}},
		"probe": {func(n *fakeNode, pod *v1.Pod) {
			n.engine.Program = func(engine.ContainerConfig) enginetest.Behavior {
				return enginetest.Behavior{Runs: true, Exec: func([]string) engine.ExecResult { return engine.ExecResult{ExitCode: 1} }}
			}
			pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{
				ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}},
				PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1,
			}
		}, []string{"Normal Pulled", "Normal Created", "Normal Started", "Warning Unhealthy", "Normal Killing"}},
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
