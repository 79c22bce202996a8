package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

// sizes has one size of a terminal.
type sizes struct {
	width, height uint16
	told          bool
}

// Next returns the size, and nil after that.
func (s *sizes) Next() *remotecommand.TerminalSize {
	if s.told {
		return nil
	}
	s.told = true
	return &remotecommand.TerminalSize{Width: s.width, Height: s.height}
}

func streamsOf(in io.Reader, out io.Writer) remotecommand.StreamOptions {
	return remotecommand.StreamOptions{Stdin: in, Stdout: out}
}

// exec runs a command in the container main of a pod, and returns its output.
func (c *cluster) exec(t *testing.T, pod string, in io.Reader, command ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := c.stream(t, pod, command, streamsOf(in, &out)); err != nil {
		t.Errorf("%q in pod %q: %v", command, pod, err)
	}
	return out.String()
}

// stream runs a command in the container main of a pod, as "kubectl exec" does.
func (c *cluster) stream(t *testing.T, pod string, command []string, o remotecommand.StreamOptions) error {
	t.Helper()
	req := c.client.CoreV1().RESTClient().Post().Namespace(v1.NamespaceDefault).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&v1.PodExecOptions{
			Container: "main", Command: command, Stdin: o.Stdin != nil, Stdout: true, TTY: o.Tty,
		}, scheme.ParameterCodec)
	e, err := remotecommand.NewSPDYExecutor(c.config, http.MethodPost, req.URL())
	if err != nil {
		return err
	}
	return e.StreamWithContext(t.Context(), o)
}

// forward forwards a port of a pod until the end of the test, as "kubectl port-forward" does. It returns
// the address of the port here.
func (c *cluster) forward(t *testing.T, pod string, port int) string {
	t.Helper()
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	must(t, err)
	url := c.client.CoreV1().RESTClient().Post().Namespace(v1.NamespaceDefault).Resource("pods").Name(pod).SubResource("portforward").URL()
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url),
		[]string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, t.Output())
	must(t, err)
	go func() { ended <- f.ForwardPorts() }()
	t.Cleanup(func() {
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	ports, err := f.GetPorts()
	must(t, err)
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local)
}
