package cmd_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runonce/cmd"
)

// TestReportFiles: --junit and --timeline are written, and refused before anything starts
// when they cannot be.
func TestReportFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, dir := newMemory(t), t.TempDir()
		pod := manifest(t, "web", "Always", `[do, "echo ready for JUnit", sleep]`)
		junit, timeline := filepath.Join(dir, "r.xml"), filepath.Join(dir, "t.svg")
		if got := invoke(t, m, "run", pod, "--node", nodeFile(), "--junit", junit, "--timeline", timeline); got.code != 0 {
			t.Errorf("%+v", got)
		}
		has := func(path, want string) {
			t.Helper()
			if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s: %v\n%s", path, err, text)
			}
		}
		has(junit, `<testcase classname="default" name="web"`)
		has(junit, `<system-out>main: ready for JUnit&#xA;</system-out>`)
		has(timeline, "default/web")
		if got := invoke(t, m, "run", pod, "--node", nodeFile(), "--junit", junit, "--address", "dead"); got.code != 4 {
			t.Errorf("%+v", got)
		}
		has(junit, `<error type="NotStarted" message="container engine: connecting to containerd: no such socket">`)
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

// TestTimeoutBeforeThePlan: the timeout of a run also ends what comes before the pods.
func TestTimeoutBeforeThePlan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		m.importTakes = time.Hour
		pod, dir := manifest(t, "web", "Always", "[sleep]"), t.TempDir()
		begin := time.Now()
		got := invoke(t, m, "run", pod, "--node", nodeFile(), "--timeout", "5s", "--images-dir", dir)
		want := "the run has timed out: --images-dir: importing " + dir
		if got.code != 1 || !strings.Contains(got.stdout, "default/web: TimedOut, NotStarted") || !strings.Contains(got.stdout, want) {
			t.Errorf("while importing: %+v", got)
		}
		in, w := io.Pipe()
		got = invokeWith(t, cmd.IO{Open: m.open, Stdin: in}, "run", "-", "--node", nodeFile(), "--timeout", "5s")
		if got.code != 1 || got.stderr != "runonce: reading the manifests: the run has timed out\n" {
			t.Errorf("while reading: %+v", got)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("took %s, want 5s twice", took)
		}
	})
}
