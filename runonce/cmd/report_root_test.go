package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runonce/lastrun"
)

// TestReportOfKilledProcess: who waits for a run that is killed learns that it has no result, what is left of its pods is
// shown, and the next run has a report again.
func TestReportOfKilledProcess(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	first, started, letGo := held(t)
	m.once(t, "run", "--settle", "0", sizedPod(t, "other", 100, sleeps))
	run := m.start(t, first, "--settle", "0")
	await(t, started)
	out, stderr := m.run(t, 1, "report", first)
	if !strings.Contains(out, "first  ") || !strings.Contains(stderr, "has not ended: --wait waits for it") || strings.Contains(out, "other") {
		t.Errorf("while it goes on:\n%s%s", out, stderr)
	}
	waiting := make(chan string, 1)
	go func() {
		_, stderr := m.run(t, 1, "report", "--wait", "--exit-code", first)
		waiting <- stderr
	}()
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait()
	letGo()
	if stderr := <-waiting; !strings.Contains(stderr, "has ended without a result: it was killed") {
		t.Error(stderr)
	}
	m.once(t, "run", "--settle", "0", first)
	if out := m.once(t, "report", "--exit-code"); !strings.Contains(out, "first  Running") {
		t.Error(out)
	}
}

// TestReportNeedsRoot: who may not read the root is told what helps.
func TestReportNeedsRoot(t *testing.T) {
	roottest.Require(t)
	root := filepath.Join(t.TempDir(), "root")
	r, err := lastrun.Begin(root, "run", []string{"/pods"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.End(0) })
	for _, args := range [][]string{{"report", "--root", root}, {"report", "/pods", "--wait", "--root", root}} {
		program := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
		program.Env = append(os.Environ(), asProgram+"=1")
		program.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, _ := program.CombinedOutput()
		if code := program.ProcessState.ExitCode(); code != 4 || string(out) != "runonce: \"report\" needs root: use sudo\n" {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}
