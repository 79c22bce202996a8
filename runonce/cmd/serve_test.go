package cmd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runonce/runonce/runonce/cmd"
)

// serves has "serve" answer a request for a path, over a socket or TCP, and prints the answer. It is then interrupted.
func (s *story) serves(ts *testscript.TestScript, args []string) {
	dir, err := os.MkdirTemp("", "ro-") // the path of a socket must be short
	ts.Check(err)
	defer func() { ts.Check(os.RemoveAll(dir)) }()
	socket := filepath.Join(dir, "s")
	listen := map[string]string{"socket": "unix:" + socket, "tcp": "127.0.0.1:0"}[args[0]]
	signals := make(chan os.Signal, 1)
	ready := make(chan struct{})
	world := s.world
	var stderr strings.Builder
	world.Environ, world.Signals, world.Stdout, world.Stderr, world.Stdin = func() []string { return s.environ }, signals, io.Discard, &stderr, strings.NewReader("")
	world.Notify = func(message string) {
		if message == "READY=1" {
			close(ready)
		}
	}
	ended := make(chan int, 1)
	go func() { ended <- cmd.Main(s.t.Context(), s.arguments([]string{"serve", "--listen", listen}), world) }()
	select {
	case <-ready:
	case code := <-ended:
		ts.Fatalf("exit code %d: %s", code, &stderr)
	}
	answer, err := s.request(args[0], socket, args[1])
	signals <- syscall.SIGTERM
	if s.code = <-ended; s.code != 0 || err != nil {
		ts.Fatalf("exit code %d, %v: %s", s.code, err, &stderr)
	}
	_, err = io.WriteString(ts.Stdout(), answer)
	ts.Check(err)
	_, err = io.WriteString(ts.Stderr(), stderr.String())
	ts.Check(err)
}

// request returns the answer to a request, over TCP by what "kubeconfig" prints.
func (s *story) request(how, socket, path string) (string, error) {
	client, url := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}, "http://node"
	if how == "tcp" {
		var text bytes.Buffer
		world := s.world
		world.Stdout, world.Stderr = &text, &text
		state := s.flags[slices.Index(s.flags, "--state")+1]
		if code := cmd.Main(s.t.Context(), []string{"runonce", "kubeconfig", "--state", state}, world); code != 0 {
			return "", errors.New(text.String())
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(text.Bytes())
		if err != nil {
			return "", err
		}
		if client, err = rest.HTTPClientFor(config); err != nil {
			return "", err
		}
		url = config.Host
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	answer, err := io.ReadAll(resp.Body)
	return string(answer), errors.Join(err, resp.Body.Close())
}
