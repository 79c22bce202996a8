package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
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
			{[]string{"logs", "job", "--tail", "0"}, 0, "", ""},
			{[]string{"logs", "job", "-f", "--tail", "0"}, 0, "", ""},
			{[]string{"logs", "job", "-f"}, 0, "one\ntwo\nthree\n", ""},
			{[]string{"logs", "flaky", "--previous"}, 0, "", "flaky: call 1 of 2 fails\n"},
			{[]string{"logs", "job", "--previous"}, 2, "", `no log of an earlier instance of container "main"`},
			{[]string{"logs", "nobody"}, 2, "", `no logs of pod "nobody"`},
			{[]string{"logs", "other/job"}, 2, "", `no logs of pod "other/job"`},
			{[]string{"logs", "job", "-c", "none"}, 2, "", "it has: main"},
			{[]string{"logs"}, 2, "", "needs exactly one POD"},
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
