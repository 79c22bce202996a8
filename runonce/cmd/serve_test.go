package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runonce/runonce/internal/podspec"
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
	if _, inMemory := world.Machine.(fstest.MapFS); inMemory { // where the node is a file, which serve does not need
		world.Machine = fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")}}
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
	client, url := viaSocket(socket), "http://node"
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
	return fetch(s.t.Context(), client, url+path)
}

// viaSocket is a client of a server on a socket.
func viaSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
}

// fetch returns the answer to a request.
func fetch(ctx context.Context, client *http.Client, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
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

// TestWatchServes: pods are served while they are watched, with the readiness that watch has found.
func TestWatchServes(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ro-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	m := newMemory(t)
	interrupt, ended := background(t, m, "watch", "--settle", "0", "--node", nodeFile(), "--serve", "unix:"+socket, text(t, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: "localhost/box:1", args: [trap], readinessProbe: {exec: {command: [/bin/box, exit, "0"]}, periodSeconds: 1}}]}
`))
	ready := func() bool {
		answer, err := fetch(t.Context(), viaSocket(socket), "http://node/pods")
		var list v1.PodList
		return err == nil && json.Unmarshal([]byte(answer), &list) == nil && len(list.Items) == 1 && podspec.IsReady(list.Items[0].Status)
	}
	for deadline := time.Now().Add(time.Minute); !ready(); time.Sleep(20 * time.Millisecond) {
		select {
		case got := <-ended:
			t.Fatalf("exit code %d\n%s%s", got.code, got.stdout, got.stderr)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("not ready within a minute")
		}
	}
	interrupt()
	if got := <-ended; got.code != 0 || !strings.Contains(got.stderr, "serving on unix:"+socket) {
		t.Errorf("exit code %d\n%s", got.code, got.stderr)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
}
