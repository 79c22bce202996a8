package cmd_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/internal/systemd"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/shim"
)

// asProgram is the environment variable that makes the test binary the program itself.
const asProgram = "RUNONCE_TEST_PROGRAM"

// TestMain lets the test binary be the shim and the program, too: a build without the
// packed shim runs a copy of itself.
func TestMain(m *testing.M) {
	if shim.Invoked(os.Args) {
		os.Exit(shim.Main())
		return
	}
	if os.Getenv(asProgram) == "" {
		code := m.Run()
		_ = os.RemoveAll(converterMade) // or nothing
		os.Exit(code)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, cmd.Signals()...)
	os.Exit(cmd.Main(testContext(), os.Args, cmd.IO{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Machine: os.DirFS("/"), Open: backend.Open,
		Signals: signals, CatchHangups: func() { signal.Notify(signals, syscall.SIGHUP) }, Exit: os.Exit, Environ: ownEnviron, Notify: systemd.TakeNotify(), Journal: systemd.JournalSocket,
	}))
}

// ownEnviron returns the environment without what is for the tests.
func ownEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "RUNONCE_TEST_") })
}

// testContext is for what outlives a test.
func testContext() context.Context { return context.Background() }

// noEngine fails the test when a command opens the engine.
func noEngine(t *testing.T) cmd.IO {
	return cmd.IO{Open: func(context.Context, backend.Options) (backend.Engine, error) {
		t.Error("the engine was opened")
		return nil, errors.New("no engine")
	}}
}

// TestNoEngineNeeded: what plans and checks can run anywhere.
func TestNoEngineNeeded(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	for _, args := range [][]string{
		{"validate", pod},
		{"validate", pod, "-o", "json"},
		{"plan", pod, "--capacity", "cpu=1,memory=1Gi", "--node", nodeFile()},
		{"plan", pod, "--running", pod, "--node", nodeFile(), "-o", "yaml"},
		{"version"},
		{"version", "-o", "json"},
		{"completion", "bash"},
		{"completion", "zsh"},
		{"completion", "fish"},
		{"help"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			got := invokeWith(t, noEngine(t), args...)
			if got.code != 0 || got.stdout == "" || got.stderr != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
			}
		})
	}
}

// TestPlanRunning: what is required of the input is not of pods that run.
func TestPlanRunning(t *testing.T) {
	t.Parallel()
	pod := []byte(boxPod("new", "Always", "[sleep]"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(pod) }))
	t.Cleanup(server.Close)
	running := podDir(t, strings.Replace(boxPod("old", "Always", "[sleep]"), "spec:", "spec:\n  hostNetwork: true", 1))
	got := invokeWith(t, noEngine(t), "plan", server.URL, "--node", nodeFile(), "--running", running,
		"--pod-security", "baseline", "--sha256", fmt.Sprintf("%x", sha256.Sum256(pod)))
	if got.code != 0 || !strings.Contains(got.stdout, "Admitted") {
		t.Errorf("%+v", got)
	}
}

// TestArguments: a command that takes no arguments refuses them.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"version", "images list", "images prune"} {
		got := invokeWith(t, noEngine(t), append(strings.Fields(command), "x")...)
		if got.code != 2 || !strings.Contains(got.stderr, command+" takes no arguments") {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// TestHelp: help is that of the command, also if it is one of images.
func TestHelp(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{"help": "runonce - ", "help run": "runonce run - ", "help images": "runonce images - ", "help images pull": "runonce images pull - "} {
		if got := invokeWith(t, noEngine(t), strings.Fields(args)...); got.code != 0 || !strings.HasPrefix(got.stdout, "NAME:\n   "+want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	for _, args := range []string{"help nosuch", "help images nosuch"} {
		if got := invokeWith(t, noEngine(t), strings.Fields(args)...); got.code != 2 || !strings.Contains(got.stderr, "unknown command") {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestEngineUnusable: exit code 4 and one line.
func TestEngineUnusable(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	m := newMemory(t)
	for _, args := range [][]string{
		{"run", pod, "--node", nodeFile()}, {"ps"}, {"down", "--all"}, {"images", "list"}, {"images", "import", pod},
	} {
		got := invoke(t, m, append(args, "--address", "dead")...)
		if got.code != 4 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, got.code, got.stdout, got.stderr)
		}
	}
	for _, args := range [][]string{{"run", pod, "--node", nodeFile()}, {"ps"}, {"images", "list"}} {
		got := invoke(t, m, append(args, "--address", "dead", "-o", "json")...)
		checkDocument(t, args, got.stdout)
		if got.code != 4 || !strings.Contains(got.stdout, `"error": "container engine: `) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%v: %+v", args, got)
		}
	}
	got := invokeWith(t, cmd.IO{Open: m.open, Getenv: func(string) string { return "dead" }}, "ps")
	if got.code != 4 {
		t.Errorf("with CONTAINERD_ADDRESS: exit code %d", got.code)
	}
}

// TestMessages: progress for a person at a terminal, JSON for a program.
func TestMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		pod := manifest(t, "web", "Always", "[sleep]")
		place := []string{"--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log"), "--node", nodeFile()}
		got := invokeWith(t, cmd.IO{Open: m.open, StderrTerminal: true, StdoutTerminal: true}, append([]string{"run", pod}, place...)...)
		if !strings.Contains(got.stderr, "default/web: Running\n") || !strings.Contains(got.stdout, "\x1b[32mRunning") {
			t.Errorf("%+v", got)
		}
		noColor := func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }
		got = invokeWith(t, cmd.IO{Open: m.open, StdoutTerminal: true, Getenv: noColor}, append([]string{"run", pod}, place...)...)
		if strings.Contains(got.stdout, "\x1b") || got.code != 0 {
			t.Errorf("%+v", got)
		}
		dumb := func(name string) string { return map[string]string{"TERM": "dumb"}[name] }
		got = invokeWith(t, cmd.IO{Open: m.open, StderrTerminal: true, StdoutTerminal: true, Getenv: dumb}, append([]string{"run", pod}, place...)...)
		if strings.Contains(got.stdout+got.stderr, "\x1b") {
			t.Errorf("%+v", got)
		}
		for _, silent := range [][]string{{"--quiet"}, {"--log-format", "json"}} {
			got = invokeWith(t, cmd.IO{Open: m.open, StderrTerminal: true}, slices.Concat([]string{"run", pod}, silent, place)...)
			if got.code != 0 || got.stderr != "" {
				t.Errorf("%v: %+v", silent, got)
			}
		}
		got = invokeWith(t, cmd.IO{Open: m.open, StderrTerminal: true}, append([]string{"run", pod, "--log-format", "json", "--log-level", "info"}, place...)...)
		for line := range strings.Lines(got.stderr) {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
		got = invokeWith(t, cmd.IO{Open: m.open}, append([]string{"run", "/none", "--log-format", "json"}, place...)...)
		if got.code != 2 || !json.Valid([]byte(got.stderr)) {
			t.Errorf("%+v", got)
		}
	})
}

// TestInterruptedEarly: an interrupted run reports, whatever it was doing.
func TestInterruptedEarly(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cmd.Interrupt{Signal: syscall.SIGHUP})
	var out bytes.Buffer
	pod := manifest(t, "web", "Always", "[sleep]")
	code := cmd.Main(ctx, []string{"runonce", pod, "-o", "json", "--node", nodeFile(), "--root", t.TempDir()}, cmd.IO{
		Stdout: &out, Stderr: io.Discard, Open: newMemory(t).open, Getenv: func(string) string { return "" }, Machine: bareMachine(),
	})
	checkDocument(t, nil, out.String())
	if code != 129 || !strings.Contains(out.String(), `"exitCode": 129`) || !strings.Contains(out.String(), `"error": "interrupted: hangup"`) {
		t.Errorf("exit code %d, %s", code, &out)
	}
}

// cancelWriter cancels when something is written.
type cancelWriter struct{ cancel context.CancelCauseFunc }

func (w cancelWriter) Write(p []byte) (int, error) {
	w.cancel(cmd.Interrupt{Signal: syscall.SIGINT})
	return len(p), nil
}

// TestSecondSignal: the first signal starts the removal of --rm and says how long that may
// take, the second ends the process and says what is left.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		signals := make(chan os.Signal, 1)
		time.AfterFunc(time.Second, func() { signals <- syscall.SIGTERM })
		time.AfterFunc(time.Second+time.Millisecond, func() { signals <- syscall.SIGTERM }) // as timeout(1) does
		time.AfterFunc(3*time.Second, func() { signals <- syscall.SIGINT })
		exits := make(chan invocation, 1)
		var errs lockedBuffer
		cmd.Main(t.Context(), []string{
			"runonce", "run", "--rm", "--until", "completed", manifest(t, "deaf", "Never", "[stay]"),
			"--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log"), "--node", nodeFile(),
		}, cmd.IO{
			Stdout: io.Discard, Stderr: &errs, Open: m.open, Machine: bareMachine(), Getenv: func(string) string { return "" },
			Signals: signals, Exit: func(n int) { exits <- invocation{code: n, stderr: errs.String()} },
		})
		want := `default/deaf: Starting
interrupted: removing the pods of this run, which takes up to 30s; a second signal exits at once, without waiting for them
default/deaf: Stopping (up to 30s): the run removes its pods
runonce: interrupted again: exiting at once, pods were told to stop: default/deaf; "runonce ps" shows them, "runonce down" removes them
`
		if got := <-exits; got.stderr != want || got.code != 130 {
			t.Errorf("exit code %d, stderr:\n%s", got.code, got.stderr)
		}
	})
}

// lockedBuffer is a buffer that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestInterruptedAnywhere: a signal decides the exit code of every command.
func TestInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	pod := manifest(t, "web", "Always", `[do, "echo here", sleep]`)
	invoke(t, m, "run", pod, "--node", nodeFile())
	ctx, cancel := context.WithCancelCause(t.Context())
	var errs bytes.Buffer
	code := cmd.Main(ctx, []string{"runonce", "logs", "web", "-f", "--root", m.root, "--log-dir", filepath.Join(m.root, "log")}, cmd.IO{
		Stdout: cancelWriter{cancel}, Stderr: &errs, Open: m.open, Getenv: func(string) string { return "" }, Machine: bareMachine(),
	})
	if code != 130 || errs.String() != "runonce: interrupted: interrupt\n" {
		t.Errorf("exit code %d, stderr %q", code, &errs)
	}
}
