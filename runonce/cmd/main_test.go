package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runtime/shim"
)

// asProgram is the environment variable that makes the test binary the program itself.
const asProgram = "RUNONCE_TEST_PROGRAM"

// TestMain lets the test binary be the shim and the program, too: a build without the
// packed shim runs a copy of itself.
func TestMain(m *testing.M) {
	if shim.Invoked(os.Args) {
		shim.Main()
		return
	}
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithCancelCause(testContext())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, cmd.Signals()...)
	go cmd.Watch(signals, cancel, os.Exit)
	os.Exit(cmd.Main(ctx, os.Args, cmd.IO{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Machine: os.DirFS("/"), Open: cmd.OpenContainerd,
	}))
}

// testContext is for what outlives a test.
func testContext() context.Context { return context.Background() }

// noEngine fails the test when a command opens the engine.
func noEngine(t *testing.T) cmd.IO {
	return cmd.IO{Open: func(context.Context, cmd.EngineOptions) (cmd.Engine, error) {
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
		place := []string{"--root", m.root, "--state", m.root, "--log-dir", filepath.Join(m.root, "log"), "--node", nodeFile()}
		got := invokeWith(t, cmd.IO{Open: m.open, StderrTerminal: true, StdoutTerminal: true}, append([]string{"run", pod}, place...)...)
		if !strings.Contains(got.stderr, "[1/1] default/web: Running\n") || !strings.Contains(got.stdout, "\x1b[32mRunning") {
			t.Errorf("%+v", got)
		}
		for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
			getenv := func(asked string) string { return map[string]string{name: value}[asked] }
			got = invokeWith(t, cmd.IO{Open: m.open, StdoutTerminal: true, Getenv: getenv}, append([]string{"run", pod}, place...)...)
			if strings.Contains(got.stdout, "\x1b") || got.stderr != "" {
				t.Errorf("with %s: %+v", name, got)
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
	code := cmd.Main(ctx, []string{"runonce", pod, "-o", "json", "--node", nodeFile()}, cmd.IO{
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
