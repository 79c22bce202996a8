package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/runonce/runonce/runonce/cmd"
)

// invocation is one command and what comes of it.
type invocation struct {
	code           int
	stdout, stderr string
}

// invoke runs a command on the machine in memory.
func invoke(t *testing.T, m *memory, args ...string) invocation {
	t.Helper()
	return invokeWith(t, cmd.IO{Open: m.open}, append(args, "--root", m.root, "--state", m.root, "--log-dir", filepath.Join(m.root, "log"))...)
}

func invokeWith(t *testing.T, world cmd.IO, args ...string) invocation {
	t.Helper()
	var out, errs bytes.Buffer
	world.Stdout, world.Stderr, world.Machine = &out, &errs, bareMachine()
	if world.Getenv == nil {
		world.Getenv = func(string) string { return "" }
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := cmd.Main(ctx, append([]string{"runonce"}, args...), world)
	return invocation{code, out.String(), errs.String()}
}

// manifest writes a pod with one container and returns the file's path.
func manifest(t *testing.T, name, policy, args string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".yaml")
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  restartPolicy: " + policy +
		"\n  containers:\n  - {name: main, image: \"localhost/box:1\", args: " + args + "}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func nodeFile() string { return filepath.Join(casesDir, "node.yaml") }

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
	got := invokeWith(t, cmd.IO{Open: m.open, Getenv: func(string) string { return "dead" }}, "ps")
	if got.code != 4 {
		t.Errorf("with CONTAINERD_ADDRESS: exit code %d", got.code)
	}
}

// TestLogs reads what containers have written, those that are gone included.
func TestLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		job := manifest(t, "job", "Never", `[do, "echo one", "echo two", "exit 3 three"]`)
		flaky := manifest(t, "flaky", "OnFailure", `[flaky, /f, "2"]`)
		invoke(t, m, "run", job, flaky, "--node", nodeFile(), "--until", "completed")
		for _, c := range []struct {
			args           []string
			code           int
			stdout, stderr string
		}{
			{[]string{"logs", "job"}, 0, "one\ntwo\nthree\n", ""},
			{[]string{"logs", "default/job", "-c", "main", "--tail", "1"}, 0, "three\n", ""},
			{[]string{"logs", "job", "-f"}, 0, "one\ntwo\nthree\n", ""},
			{[]string{"logs", "flaky", "--previous"}, 0, "call 1 of 2\n", ""},
			{[]string{"logs", "job", "--previous"}, 2, "", "has not been restarted"},
			{[]string{"logs", "nobody"}, 2, "", `no logs of pod "nobody"`},
			{[]string{"logs", "other/job"}, 2, "", `no logs of pod "other/job"`},
			{[]string{"logs", "job", "-c", "none"}, 2, "", "it has: main"},
			{[]string{"logs"}, 2, "", "needs exactly one POD"},
			{[]string{"logs", "job", "--tail", "-1"}, 2, "", "must not be negative"},
		} {
			got := invoke(t, m, c.args...)
			if got.code != c.code || got.stdout != c.stdout || !strings.Contains(got.stderr, c.stderr) {
				t.Errorf("%v: exit code %d, stdout %q, stderr %q", c.args, got.code, got.stdout, got.stderr)
			}
		}
		invoke(t, m, "down", "--all")
		if got := invoke(t, m, "logs", "job"); got.stdout != "one\ntwo\nthree\n" {
			t.Errorf("after down: %+v", got)
		}
	})
}

// TestReportFiles: --junit and --timeline are written, and refused before anything starts
// when they cannot be.
func TestReportFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, dir := newMemory(t), t.TempDir()
		pod := manifest(t, "web", "Always", "[sleep]")
		junit, timeline := filepath.Join(dir, "r.xml"), filepath.Join(dir, "t.svg")
		if got := invoke(t, m, "run", pod, "--node", nodeFile(), "--junit", junit, "--timeline", timeline); got.code != 0 {
			t.Errorf("%+v", got)
		}
		for path, want := range map[string]string{junit: `<testcase classname="default" name="web"`, timeline: "default/web"} {
			if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: %v\n%s", path, err, text)
			}
		}
		got := invokeWith(t, noEngine(t), "run", pod, "--node", nodeFile(), "--junit", filepath.Join(dir, "none", "r.xml"))
		if got.code != 2 {
			t.Errorf("%+v", got)
		}
	})
}

// TestRunFlags: what a flag cannot mean is said before anything is opened.
func TestRunFlags(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	for flag, want := range map[string]string{
		"--cgroup-driver=cgroups": `--cgroup-driver "cgroups": must be cgroupfs or systemd`,
		"--pod-pids-limit=0":      "--pod-pids-limit 0: must be a number of processes, or -1 for no limit",
		"--until=done":            `until "done": must be one of running, ready, completed`,
	} {
		got := invokeWith(t, noEngine(t), "run", pod, flag)
		if got.code != 2 || !strings.Contains(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", flag, got.code, got.stderr, want)
		}
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
		noColor := func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }
		got = invokeWith(t, cmd.IO{Open: m.open, StdoutTerminal: true, Getenv: noColor}, append([]string{"run", pod}, place...)...)
		if strings.Contains(got.stdout, "\x1b") || got.stderr != "" {
			t.Errorf("%+v", got)
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

// TestImages lists and imports.
func TestImages(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
	}{
		{[]string{"images", "list"}, 0, "IMAGE            DIGEST      SIZE\nlocalhost/box:1  sha256:box  2.9 MB\n"},
		{[]string{"images", "import", m.root}, 0, "localhost/box:1 imported\n"},
		{[]string{"images", "import", "/none"}, 2, ""},
		{[]string{"images", "import"}, 2, ""},
		{[]string{"images"}, 2, ""},
	} {
		got := invokeWith(t, cmd.IO{Open: m.open}, c.args...)
		if got.code != c.code || got.stdout != c.stdout {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
}

// TestDownByFaultyManifest: an error in its file does not make a pod impossible to stop.
func TestDownByFaultyManifest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		pod := manifest(t, "web", "Always", "[sleep]")
		invoke(t, m, "run", pod, "--node", nodeFile())
		text, err := os.ReadFile(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(pod, []byte(strings.Replace(string(text), "args:", "argz:", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := invoke(t, m, "down", pod); got.code != 0 || got.stdout != "default/web removed\n" {
			t.Errorf("%+v", got)
		}
		if got := invoke(t, m, "down", pod); got.code != 0 || got.stdout != "" {
			t.Errorf("once more: %+v", got)
		}
		if got := invoke(t, m, "down", "--all"); got.code != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestStrictTakesWarningsForErrors: validate names both alike but for a word, and exits by
// what --strict makes of warnings.
func TestStrictTakesWarningsForErrors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pod.yaml")
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  serviceAccountName: robot\n  containers: [{name: c, image: i}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lax := invokeWith(t, noEngine(t), "validate", path)
	if lax.code != 0 || !strings.HasPrefix(lax.stdout, "warning: "+path+":5: spec.serviceAccountName: ") {
		t.Errorf("exit code %d, %q", lax.code, lax.stdout)
	}
	strict := invokeWith(t, noEngine(t), "validate", "--strict", path)
	if strict.code != 2 || !strings.HasPrefix(strict.stdout, path+":5: spec.serviceAccountName: ") {
		t.Errorf("with --strict: exit code %d, %q", strict.code, strict.stdout)
	}
}

// TestCronJobsRunWhenAsked: a CronJob is a pod only with the flag.
func TestCronJobsRunWhenAsked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cron.yaml")
	text := `apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"plan", path, "--node", nodeFile()}
	if got := invokeWith(t, noEngine(t), args...); got.code != 2 {
		t.Errorf("without the flag: exit code %d\n%s", got.code, got.stdout)
	}
	if got := invokeWith(t, noEngine(t), append(args, "--run-cronjobs")...); got.code != 0 || !strings.Contains(got.stdout, "nightly") {
		t.Errorf("with the flag: exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
}
