package cmd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/runonce/runonce/runonce/cmd"
)

// watched is a watch command that runs beside the test.
type watched struct {
	m              *memory
	stdout, stderr lockedBuffer
	notified       lockedBuffer
	signals        chan os.Signal
	code           chan int
	pause          time.Duration // between looks at what is awaited
	patience       time.Duration
	calm           time.Duration // before the end, so that what has begun is over
}

func (m *memory) flags() []string {
	return []string{"--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log")}
}

func watchPaths(t *testing.T, m *memory, args ...string) *watched {
	t.Helper()
	w := &watched{m: m, pause: 10 * time.Millisecond, patience: patience}
	w.start(t, cmd.IO{}, m.watchArgs(args)...)
	return w
}

// noInotify has changes of files noticed by looking, for a test with a clock of its own (testing/synctest): that stands still while
// inotify is read.
func noInotify() (*fsnotify.Watcher, error) { return nil, errors.New("inotify is not used") }

// watchInBubble is watchPaths for a test with a clock of its own.
func watchInBubble(t *testing.T, m *memory, args ...string) *watched {
	t.Helper()
	return watchInBubbleWith(t, m, nil, args...)
}

func watchInBubbleWith(t *testing.T, m *memory, environ []string, args ...string) *watched {
	t.Helper()
	w := &watched{m: m, pause: 10 * time.Second, patience: 12 * time.Hour, calm: time.Minute}
	w.start(t, cmd.IO{Inotify: noInotify, Environ: func() []string { return environ }}, m.watchArgs(args)...)
	return w
}

// watchArgs returns the arguments of watch on a machine in memory.
func (m *memory) watchArgs(args []string) []string {
	if !slices.Contains(args, "--settle") {
		args = append(args, "--settle", "0s")
	}
	return slices.Concat([]string{"--node", nodeFile()}, args, m.flags())
}

// start starts the command.
func (w *watched) start(t *testing.T, world cmd.IO, args ...string) {
	t.Helper()
	w.signals, w.code = make(chan os.Signal, 1), make(chan int, 1)
	world.Stdout, world.Stderr, world.Signals = &w.stdout, &w.stderr, w.signals
	world.Notify = func(message string) { _, _ = fmt.Fprintln(&w.notified, message) }
	if w.m != nil {
		world.Open, world.Machine, world.Getenv = w.m.open, bareMachine(), func(string) string { return "" }
	}
	ctx := t.Context()
	go func() { w.code <- cmd.Main(ctx, append([]string{"runonce", "watch"}, args...), world) }()
}

// end sends the signal and checks the exit code.
func (w *watched) end(t *testing.T, sig os.Signal, code int) {
	t.Helper()
	time.Sleep(w.calm)
	w.signals <- sig
	select {
	case got := <-w.code:
		if got != code {
			t.Errorf("exit code %d, want %d\n%s", got, code, w.stderr.String())
		}
	case <-time.After(w.patience):
		t.Fatalf("it does not end\n%s", w.stderr.String())
	}
}

// await waits until the condition is true.
func (w *watched) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(w.patience); !condition(); time.Sleep(w.pause) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come\n%s\n%s\n%s", what, w.stdout.String(), w.stderr.String(), w.notified.String())
		}
	}
}

// status returns the state that the service manager was told last.
func (w *watched) status() string { return lastStatus(strings.Split(w.notified.String(), "\n")) }

// pods returns "name restarts" for each running pod.
func (w *watched) pods(t *testing.T) (names []string) {
	t.Helper()
	var list struct {
		Pods []struct {
			Name       string
			Containers []struct {
				State    string
				Restarts int
			}
		}
	}
	got := invoke(t, w.m, "ps", "-o", "json")
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil {
		t.Fatalf("%v\n%+v", err, got)
	}
	for _, p := range list.Pods {
		if c := p.Containers[0]; c.State == "Running" {
			names = append(names, fmt.Sprint(p.Name, " ", c.Restarts))
		}
	}
	return names
}

func (w *watched) awaitPods(t *testing.T, want ...string) {
	t.Helper()
	w.await(t, strings.Join(want, ", "), func() bool { return slices.Equal(w.pods(t), want) })
}

func boxPod(name, policy, args string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  restartPolicy: " + policy +
		"\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: main, image: \"localhost/box:1\", args: " + args + "}\n"
}

// TestWatchPaths: what ends is started again, changes are applied, invalid ones are not, and the pods
// outlive the command.
func TestWatchPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var remote atomic.Value
	remote.Store(boxPod("remote", "Always", "[sleep]"))
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(rw, remote.Load()) }))
	defer server.Close()
	write("a.yaml", boxPod("a", "Always", "[sleep]"))
	w := watchPaths(t, newMemory(t), dir, server.URL)
	w.awaitPods(t, "a 0", "remote 0")
	w.await(t, "the notification", func() bool { return strings.Contains(w.notified.String(), "READY=1") })

	if err := w.m.kill(t.Context(), "default/a", "main", 1); err != nil {
		t.Fatal(err)
	}
	w.awaitPods(t, "a 1", "remote 0")

	write("b.yaml", boxPod("b", "Always", "[sleep]"))
	w.awaitPods(t, "a 1", "b 0", "remote 0")

	write("a.yaml", boxPod("a", "Always", "[sleep, 1h]"))
	w.awaitPods(t, "a 0", "b 0", "remote 0")

	write("c.yaml", "kind: Pod\n")
	w.await(t, "the error", func() bool { return strings.Contains(w.stderr.String(), "c.yaml") })
	w.await(t, "the consequence", func() bool { return strings.Contains(w.stderr.String(), "the pods are left as they are") })
	w.awaitPods(t, "a 0", "b 0", "remote 0")

	write("c.yaml", boxPod("huge", "Always", "[sleep], resources: {requests: {cpu: 1k}}"))
	w.await(t, "the refusal", func() bool { return strings.Contains(w.stderr.String(), "default/huge: the pod will not run") })
	w.awaitPods(t, "a 0", "b 0", "remote 0")

	// A faulty file that goes away leaves the manifests as they were.
	valid := func() int { return strings.Count(w.stderr.String(), "runonce: the manifests are valid again\n") }
	w.await(t, "the end of the error", func() bool { return valid() == 1 })
	write("d.yaml", "kind: Pod\n")
	w.await(t, "another error", func() bool { return strings.Contains(w.stderr.String(), "d.yaml") })
	if err := os.Remove(filepath.Join(dir, "d.yaml")); err != nil {
		t.Fatal(err)
	}
	w.await(t, "the end of this error", func() bool { return valid() == 2 })

	for _, name := range []string{"b.yaml", "c.yaml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.awaitPods(t, "a 0", "remote 0")

	remote.Store(boxPod("other", "Always", "[sleep]"))
	w.signals <- syscall.SIGHUP
	w.awaitPods(t, "a 0", "other 0")
	w.await(t, "the state", func() bool { return w.status() == "2 of 2 pods running" })

	if n := strings.Count(w.stdout.String(), "OUTCOME"); n != 1 {
		t.Errorf("%d tables, want one\n%s", n, w.stdout.String())
	}
	w.end(t, syscall.SIGTERM, 0)
	w.awaitPods(t, "a 0", "other 0")
	if w.status() != "2 of 2 pods running" || !strings.Contains(w.notified.String(), "STOPPING=1\n") {
		t.Errorf("notified at the end:\n%s", w.notified.String())
	}
}

// TestWatchEnds: the exit code says how the pods are, and --stop-pods stops them.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, pod string
		args      []string
		code      int
		ready     bool
		left      []string
	}{
		{"running", boxPod("a", "Always", "[sleep]"), nil, 0, true, []string{"a 0"}},
		{"stopped", boxPod("a", "Always", "[sleep]"), []string{"--stop-pods"}, 0, true, nil},
		{"done", boxPod("a", "Never", "[exit, '0']"), nil, 0, true, nil},
		{"failed", boxPod("a", "Never", "[exit, '1']"), []string{"--settle", "1h"}, 1, false, nil},
		{"a limit on restarts", boxPod("a", "Always", "[exit, '1']"), []string{"--max-restarts", "0", "--settle", "1h"}, 1, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := podDir(t, tc.pod)
			w := watchPaths(t, newMemory(t), append(tc.args, dir)...)
			w.await(t, "the table", func() bool { return strings.Contains(w.stdout.String(), "OUTCOME") })
			w.end(t, syscall.SIGTERM, tc.code)
			if ready := strings.Contains(w.notified.String(), "READY=1"); ready != tc.ready {
				t.Errorf("ready: %v, want %v", ready, tc.ready)
			}
			if left := w.pods(t); !slices.Equal(left, tc.left) {
				t.Errorf("left: %v, want %v", left, tc.left)
			}
		})
	}
	t.Run("not at the goal", func(t *testing.T) {
		t.Parallel()
		w := watchPaths(t, newMemory(t), podDir(t, boxPod("a", "Always", "[exit, '1']")), "-o", "json", "--settle", "1h")
		w.await(t, "the crash", func() bool { return strings.Contains(w.stderr.String(), "back-off") })
		w.end(t, syscall.SIGINT, 130)
		checkDocument(t, []string{"watch"}, w.stdout.String())
		if strings.Contains(w.notified.String(), "READY=1") {
			t.Error("it is ready")
		}
	})
}

// TestWatchRefuses: what cannot be watched is refused.
func TestWatchRefuses(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{pod, "--kubeconfig", "/none"}, "on this machine only"},
		{[]string{pod, "--context", "c"}, "on this machine only"},
		{[]string{"-"}, "standard input can only be read once"},
		{[]string{pod, "--rm"}, "--rm"},
		{[]string{pod, "--timeout", "1m"}, "it needs --rollback"},
		{[]string{pod, "--pull-interval", "1m"}, "it needs --pull=newer or --pull=always"},
		{[]string{pod, "--pull-interval", "1m", "--pull", "never"}, "it needs --pull=newer or --pull=always"},
		{[]string{pod, "--pull-interval", "1m", "--pull", "newer", "--lock", "/none"}, "it cannot be used with --lock"},
		{[]string{pod, "--pull-interval", "-1m", "--pull", "newer"}, "--pull-interval"},
		{[]string{"/none"}, "does not exist"},
		{nil, "no PATH given"},
	} {
		got := invokeWith(t, noEngine(t), append([]string{"watch", "--node", nodeFile()}, tc.args...)...)
		if got.code != 2 || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("%v: %+v", tc.args, got)
		}
	}
}

// TestWatchImages: a change that needs an image which must not be pulled is not applied.
func TestWatchImages(t *testing.T) {
	t.Parallel()
	dir := podDir(t, boxPod("a", "Always", "[sleep]"))
	w := watchPaths(t, newMemory(t), "--offline", dir)
	w.awaitPods(t, "a 0")
	other := strings.ReplaceAll(boxPod("b", "Always", "[sleep]"), "box:1", "absent:1")
	if err := os.WriteFile(filepath.Join(dir, "b.yaml"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	w.await(t, "the error", func() bool { return strings.Contains(w.stderr.String(), `image "localhost/absent:1" is not present`) })
	w.awaitPods(t, "a 0")
	w.end(t, syscall.SIGTERM, 0)
}
