package e2e

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/runonce/runonce/internal/testing/daemon"
)

// TestWaitForLiveRun: "wait" sees the pods of a run that goes on, uses its containerd, and goes on when that run is
// killed: it says so if nobody starts the containers any more.
func TestWaitForLiveRun(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		dir := directory(t, pod("job", "Never", "do", "sleep 6s", "exit 0"), pod("again", "OnFailure", "do", "sleep 3s", "exit 7"))
		run := b.command(t, "run", b.upArgs(t, dir, "--until", "completed", "--max-restarts", "100")...)
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		if !eventually(func() bool { return len(b.containers(t)) > 1 }) {
			t.Fatal("the pods do not run")
		}
		job, again := b.command(t, "wait", "job", "--for", "completed"), b.command(t, "wait", "again", "--for", "completed")
		var out, errs bytes.Buffer
		job.Stdout, again.Stderr = &out, &errs
		if err := again.Start(); err != nil {
			t.Fatal(err)
		}
		if err := job.Run(); err != nil || out.String() != "pod/job condition met\n" {
			t.Errorf("%v: %s", err, &out)
		}
		if err := run.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = run.Wait()
		_ = again.Wait()
		if code := again.ProcessState.ExitCode(); code != 1 || !strings.Contains(errs.String(), "pod/again: Failed: ") || !strings.Contains(errs.String(), "exited with code 7") {
			t.Errorf("exit code %d: %s", code, &errs)
		}
	}
	embedded(t, test)
	daemons(t, test, daemon.Current, daemon.Debian)
}
