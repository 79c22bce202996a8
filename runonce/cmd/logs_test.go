package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/runonce/runonce/runonce/cmd"
)

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
			{[]string{"logs", "pod/job"}, 0, "one\ntwo\nthree\n", ""},
			{[]string{"logs", "po/default/job"}, 0, "one\ntwo\nthree\n", ""},
			{[]string{"logs", "deployment/job"}, 2, "", `no logs of pod "deployment/job"`},
			{[]string{"logs", "job", "--tail", "0"}, 0, "", ""},
			{[]string{"logs", "job", "-f", "--tail", "0"}, 0, "", ""},
			{[]string{"logs", "job", "-f"}, 0, "one\ntwo\nthree\n", ""},
			{[]string{"logs", "flaky", "--previous"}, 0, "", "flaky: call 1 of 2 fails\n"},
			{[]string{"logs", "flaky", "-p"}, 0, "", "flaky: call 1 of 2 fails\n"},
			{[]string{"logs", "job", "--previous"}, 2, "", `no log of an earlier instance of container "main"`},
			{[]string{"logs", "nobody"}, 2, "", `no logs of pod "nobody"`},
			{[]string{"logs", "other/job"}, 2, "", `no logs of pod "other/job"`},
			{[]string{"logs", "job", "-c", "none"}, 2, "", "it has: main"},
			{[]string{"logs"}, 2, "", "logs needs a POD, --selector, --only or --all"},
			{[]string{"logs", "job", "--tail", "-1"}, 2, "", "must not be negative"},
			{[]string{"logs", "job", "--since", "-1m"}, 2, "", "must not be negative"},
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

// TestLogsOnTerminal: a log controls no terminal, but has its colors; elsewhere it is as it is.
func TestLogsOnTerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		noColor := func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }
		for pod, stream := range map[string]string{"out": "echo", "err": "error"} {
			invoke(t, m, "run", manifest(t, pod, "Never", `[`+stream+`, "\e[31mred\e[0m \e]0;title\a"]`), "--node", nodeFile(), "--until", "completed")
			args := []string{"logs", pod, "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log")}
			for _, c := range []struct {
				process cmd.IO
				want    string
			}{
				{cmd.IO{}, "\x1b[31mred\x1b[0m \x1b]0;title\a\n"},
				{cmd.IO{StdoutTerminal: true, StderrTerminal: true}, "\x1b[31mred\x1b[0m \ufffd]0;title\ufffd\n"},
				{cmd.IO{StdoutTerminal: true, StderrTerminal: true, Getenv: noColor}, "red \ufffd]0;title\ufffd\n"},
			} {
				c.process.Open = m.open
				if got := invokeWith(t, c.process, args...); got.stdout+got.stderr != c.want {
					t.Errorf("%s: %q, want %q", pod, got.stdout+got.stderr, c.want)
				}
			}
		}
	})
}

// TestDownLogs: only the logs of this root's pods are deleted.
func TestDownLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		kubelet := filepath.Join(m.root, "log", "default_web_123")
		if err := os.MkdirAll(filepath.Join(kubelet, "main"), 0o755); err != nil {
			t.Fatal(err)
		}
		invoke(t, m, "run", manifest(t, "job", "Never", `[echo, one]`), "--node", nodeFile(), "--until", "completed", "--rm")
		if got := invoke(t, m, "logs", "job"); got.stdout != "one\n" {
			t.Errorf("after run --rm: %+v", got)
		}
		if got := invoke(t, m, "down", "--all", "--logs"); got.code != 0 {
			t.Errorf("down: %+v", got)
		}
		left, err := os.ReadDir(filepath.Dir(kubelet))
		if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(kubelet) {
			t.Errorf("left are %v, %v", left, err)
		}
	})
}
