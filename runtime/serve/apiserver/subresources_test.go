package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/exec"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/serve/apiserver"
	"github.com/runonce/runonce/runtime/serve/mirror"
)

// withMany adds a container of each kind to a pod.
func withMany(pod *v1.Pod) {
	pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "side"})
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{debugger("d1")}
}

// withLog gives all containers of the machine a log.
func (m *machine) withLog(t *testing.T, lines ...string) {
	t.Helper()
	m.log = filepath.Join(t.TempDir(), "log")
	var text bytes.Buffer
	for i, line := range lines {
		fmt.Fprintf(&text, "2020-01-01T00:00:0%d.5Z stdout F %s\n", i, line)
	}
	must(t, os.WriteFile(m.log, text.Bytes(), 0o600))
}

// TestLog: logs as a client asks for them, and the errors of the API server (LogLocation of pkg/registry/core/pod).
func TestLog(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.withLog(t, "one", "two")
	m.set(mirror.Pods, pod("default", "web"), pod("default", "many", withMany))
	pods := m.client(t).CoreV1().Pods("default")
	for _, c := range []struct {
		pod    string
		o      v1.PodLogOptions
		expect string
	}{
		{"web", v1.PodLogOptions{}, "one\ntwo\n"},
		{"web", v1.PodLogOptions{Container: "main", TailLines: new(int64(1))}, "two\n"},
		{"web", v1.PodLogOptions{Timestamps: true, LimitBytes: new(int64(24))}, "2020-01-01T00:00:00.5Z o"},
		{"many", v1.PodLogOptions{Container: "init"}, "one\ntwo\n"},
		{"many", v1.PodLogOptions{Container: "d1"}, "one\ntwo\n"},
		{"many", v1.PodLogOptions{}, "400 a container name must be specified for pod many, choose one of: [init main side d1]"},
		{"many", v1.PodLogOptions{Container: "none"}, "400 container none is not valid for pod many"},
		{"web", v1.PodLogOptions{Container: "none"}, "400 container none is not valid for pod web"},
		{"web", v1.PodLogOptions{Previous: true}, `400 previous terminated container "main" not found`},
		{"web", v1.PodLogOptions{TailLines: new(int64(-1))}, "422 tailLines: -1 is less than 0"},
		{"none", v1.PodLogOptions{}, `404 pods "none" not found`},
	} {
		var text []byte
		stream, err := pods.GetLogs(c.pod, &c.o).Stream(t.Context())
		if err == nil {
			text, err = io.ReadAll(stream)
			must(t, stream.Close())
		}
		got := string(text)
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			got = fmt.Sprintf("%d %s", status.Status().Code, status.Status().Message)
		} else if err != nil {
			got = err.Error()
		}
		want(t, fmt.Sprintf("%s %+v", c.pod, c.o), got, c.expect)
	}
	want(t, "type", m.get(t, podsPath+"/web/log").header.Get("Content-Type"), "text/plain")
	a := m.get(t, podsPath+"/none/log")
	want(t, "type of an error", a.header.Get("Content-Type"), "application/json")
}

// TestFollowLog: lines are sent as they come.
func TestFollowLog(t *testing.T) {
	t.Parallel()
	m := newMachine()
	lines := make(chan string)
	m.follow = func(_ context.Context, to logs.Sinks) error {
		for line := range lines {
			if _, err := io.WriteString(to.Stdout, line); err != nil {
				return err
			}
		}
		return nil
	}
	m.set(mirror.Pods, pod("default", "web"))
	stream, err := m.client(t).CoreV1().Pods("default").GetLogs("web", &v1.PodLogOptions{Follow: true}).Stream(t.Context())
	must(t, err)
	for _, line := range []string{"one\n", "two\n"} {
		lines <- line
		got := make([]byte, len(line))
		_, err := io.ReadFull(stream, got)
		must(t, err)
		want(t, "line", string(got), line)
	}
	close(lines)
	rest, err := io.ReadAll(stream)
	must(t, err)
	want(t, "rest", string(rest), "")
	must(t, stream.Close())
}

// TestKubeletErrors: whatever a kubelet answers is a Status for the client.
func TestKubeletErrors(t *testing.T) {
	t.Parallel()
	for code, message := range map[int]string{
		http.StatusBadRequest: "broken", http.StatusNotFound: "broken", http.StatusConflict: "broken",
		http.StatusServiceUnavailable: "broken", http.StatusUnprocessableEntity: "broken", http.StatusInternalServerError: "Internal error occurred: broken",
	} {
		m := newMachine(func(o *apiserver.Options) {
			o.Kubelet = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", code) })
		})
		m.set(mirror.Pods, pod("default", "web"))
		for _, path := range []string{"/log", "/exec?command=x", "/attach", "/portforward"} {
			failed(t, path, m.get(t, podsPath+"/web"+path), code, message)
		}
		a := m.get(t, "/api/v1/nodes/node/proxy/x")
		want(t, "through the proxy", fmt.Sprint(a.code, a.body), fmt.Sprint(code, "broken\n"))
	}
}

// TestForwarded: the requests that a kubelet gets.
func TestForwarded(t *testing.T) {
	t.Parallel()
	m := newMachine(func(o *apiserver.Options) {
		o.Kubelet = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, r.URL.RawQuery)
		})
	})
	m.set(mirror.Pods, pod("default", "web"))
	for path, expect := range map[string]string{
		podsPath + "/web/log":                         "/containerLogs/default/web/main ",
		podsPath + "/web/log?follow=true&tailLines=3": "/containerLogs/default/web/main follow=true&tailLines=3",
		podsPath + "/web/exec?command=a&command=b&stdin=true&stdout=1&stderr=false&tty=true": "/exec/default/web/main command=a&command=b&input=1&output=1&tty=1",
		podsPath + "/web/attach?stdout=0&stderr=1&container=main":                            "/attach/default/web/main container=main&error=1",
		podsPath + "/web/portforward?ports=80&ports=81":                                      "/portForward/default/web port=80&port=81&ports=80&ports=81",
		"/api/v1/nodes/node/proxy":                                                           "/ ",
		"/api/v1/nodes/node/proxy/":                                                          "/ ",
		"/api/v1/nodes/node/proxy/pods":                                                      "/pods ",
		"/api/v1/nodes/node/proxy/runningpods/":                                              "/runningpods/ ",
		"/api/v1/nodes/node/proxy/a/b%2Fc?x=y":                                               "/a/b/c x=y",
		"/metrics":                                                                           "/metrics ",
	} {
		a := m.get(t, path)
		want(t, path, fmt.Sprint(a.code, a.body), "200GET "+expect)
	}
	failed(t, "another node", m.get(t, "/api/v1/nodes/none/proxy/pods"), http.StatusNotFound, `nodes "none" not found`)
	failed(t, "a post", m.ask(t, http.MethodPost, "/api/v1/nodes/node/proxy/pods", ""), http.StatusMethodNotAllowed, `create is not supported on resources of kind "nodes/proxy"`)
}

// TestNodeProxy: what reads a kubelet through an API server reads this one.
func TestNodeProxy(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	c := m.client(t)
	for _, path := range []string{"pods", "runningpods/"} {
		text, err := c.CoreV1().RESTClient().Get().Resource("nodes").Name("node").SubResource("proxy").Suffix(path).DoRaw(t.Context())
		must(t, err)
		want(t, path, names(t, answer{code: http.StatusOK, body: string(text)}), "web")
	}
}

// executors are the ways in which "kubectl exec" connects: WebSocket, SPDY, and the first with the second as fallback.
func executors(t *testing.T, config *rest.Config, u *url.URL) map[string]remotecommand.Executor {
	t.Helper()
	ws, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
	must(t, err)
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	must(t, err)
	both, err := remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	must(t, err)
	return map[string]remotecommand.Executor{"SPDY": spdy, "fallback": both}
}

// TestExec: streams and exit codes.
func TestExec(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.exec = func(_ context.Context, s engine.Streams) (int32, error) {
		in, err := io.ReadAll(s.Stdin)
		if err == nil {
			_, err = fmt.Fprintf(s.Stdout, "got %s", in)
		}
		if err == nil {
			_, err = io.WriteString(s.Stderr, "warning")
		}
		return 7, err
	}
	m.set(mirror.Pods, pod("default", "web"), pod("default", "many", withMany))
	config, _ := m.serve(t)
	c := clientOf(t, config)
	urlOf := func(name string) *url.URL {
		return c.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(name).SubResource("exec").VersionedParams(
			&v1.PodExecOptions{Command: []string{"sh"}, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	}
	for name, e := range executors(t, config, urlOf("web")) {
		var out, errs bytes.Buffer
		err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errs})
		var exit exec.ExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 7 {
			t.Errorf("%s: %v", name, err)
		}
		want(t, name, out.String()+" "+errs.String(), "got hello warning")
	}
	for name, text := range map[string]string{"many": "choose one of: [init main side d1]", "none": `pods "none" not found`} {
		for by, e := range executors(t, config, urlOf(name)) {
			if err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s by %s: %v", name, by, err)
			}
		}
	}
}

// TestExecWebSocket: the same for clients that speak no SPDY at all.
func TestExecWebSocket(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.exec = func(_ context.Context, s engine.Streams) (int32, error) {
		_, err := io.WriteString(s.Stdout, "hello")
		return 7, err
	}
	m.set(mirror.Pods, pod("default", "web"))
	config, _ := m.serve(t)
	d := websocket.Dialer{Subprotocols: []string{"v4.channel.k8s.io"}}
	conn, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(config.Host, "http")+podsPath+"/web/exec?stdout=true&command=sh", nil)
	must(t, err)
	must(t, resp.Body.Close())
	defer func() { _ = conn.Close() }()
	said := map[byte]string{} // by channel
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			break
		}
		said[message[0]] += string(message[1:])
	}
	want(t, "output", said[1], "hello")
	if !strings.Contains(said[3], `"reason":"ExitCode","message":"7"`) {
		t.Errorf("result %q", said[3])
	}
	_, resp, err = d.DialContext(t.Context(), "ws"+strings.TrimPrefix(config.Host, "http")+podsPath+"/none/exec?stdout=true&command=sh", nil)
	if err == nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("another pod: %v", err)
	}
	must(t, resp.Body.Close())
}

// TestPortForward: a port of a pod.
func TestPortForward(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.dial = func(_ context.Context, port int32) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = fmt.Fprintf(ours, "port %d", port)
			_ = ours.Close()
		}()
		return theirs, nil
	}
	m.set(mirror.Pods, pod("default", "web"))
	config, _ := m.serve(t)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	must(t, err)
	u := clientOf(t, config).CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("web").SubResource("portforward").URL()
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialer(u, config)
	must(t, err)
	overSPDY := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	both := portforward.NewFallbackDialer(overWebSocket, overSPDY, httpstream.IsUpgradeFailure)
	for _, name := range []string{"SPDY", "fallback"} {
		stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		d := overSPDY
		if name == "fallback" {
			d = both
		}
		f, err := portforward.New(d, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
		must(t, err)
		go func() { ended <- f.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-ended:
			t.Fatalf("%s: %v", name, err)
		}
		ports, err := f.GetPorts()
		must(t, err)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
		must(t, err)
		text, err := io.ReadAll(conn)
		must(t, errors.Join(err, conn.Close()))
		want(t, name, string(text), "port 80")
		close(stop)
		must(t, <-ended)
	}
}

// TestStatus: the part of a pod that others would change is read like the pod.
func TestStatus(t *testing.T) {
	t.Parallel()
	m := newMachine()
	m.set(mirror.Pods, pod("default", "web"))
	c := m.client(t)
	p := decoded[v1.Pod](t, m.get(t, podsPath+"/web/status"))
	want(t, "phase", p.Status.Phase, v1.PodRunning)
	_, err := c.CoreV1().Pods("default").UpdateStatus(t.Context(), &p, metav1.UpdateOptions{})
	if !apierrors.IsMethodNotSupported(err) {
		t.Errorf("an update: %v", err)
	}
}
