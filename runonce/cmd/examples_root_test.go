package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/roottest"
)

// TestExampleCI: the script of the CI example runs its pods, keeps their report and logs, and
// removes what it has started, but no pod of another job.
func TestExampleCI(t *testing.T) {
	roottest.Require(t)
	images := boxImages(t)
	other := newMachine(t, images)
	web := storyDir(t, "happy")
	other.once(t, "run", "--node", nodeFile(), filepath.Join(web, "manifests"))
	script, err := filepath.Abs(examples + "ci/run-pods.sh")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, work := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"runonce": `[ "$1" = run ] && set -- "$@" --images-dir ` + images + "\n" + asProgram + "=1 exec " + self + ` "$@"`,
		"go":      `echo "tests, and $(ls artifacts/pods | wc -l) pods with logs"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(work, "deploy"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(work, "deploy", "test"), os.DirFS(filepath.Join(web, "manifests"))); err != nil {
		t.Fatal(err)
	}
	p := exec.CommandContext(t.Context(), "bash", script)
	p.Dir, p.Env = work, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CI_JOB_ID="+filepath.Base(other.dir))
	out, err := p.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "tests, and ") || !strings.Contains(string(out), "removed") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, left := range []string{"/var/lib/runonce-ci/", "/run/runonce-ci/"} {
		if _, err := os.Stat(left + filepath.Base(other.dir)); err == nil {
			t.Errorf("%s is left", left)
		}
	}
	if report := read(t, filepath.Join(work, "artifacts", "pods.xml")); !strings.Contains(report, "<testcase") {
		t.Errorf("report:\n%s", report)
	}
	if ps := other.once(t, "ps"); !strings.Contains(ps, "Running") {
		t.Errorf("pods of the other job:\n%s", ps)
	}
}
