package e2e

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/runonce/runonce/internal/testing/daemon"
)

// TestDebug: ephemeral containers work on a terminal beside a run that goes on. They see the processes of their target,
// outlive who has started them, and end with the pod, which does not wait for them.
func TestDebug(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		run := b.command(t, "run", b.upArgs(t, directory(t, pod("job", "Never", "do", "await /go", "exit 0")), "--until", "completed")...)
		var report strings.Builder
		run.Stdout = &report
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		debug := func(args ...string) []string {
			return append([]string{"debug", "--image", "localhost/box:1", "job"}, args...)
		}
		if !eventually(func() bool { return b.run(t, "exec", "job", "--", "/bin/box", "exit", "0").code == 0 }) {
			t.Fatal("the pod does not run")
		}
		out, code := b.inTerminal(t, debug("-it", "--target", "main", "--", "/bin/box", "do", "facts", "trap", "exit 5"), "ready",
			func(ours *os.File, _ *exec.Cmd) { _, _ = ours.WriteString("\x03") })
		if code != 5 || !strings.Contains(out, "got signal 2") || !strings.Contains(out, `await /go`) || !strings.Contains(out, `"ttySize":[40,120]`) {
			t.Errorf("Ctrl-C: exit code %d, output %q", code, out)
		}
		out, code = b.inTerminal(t, debug("-it", "-c", "stays", "--", "/bin/box", "do", "listen", "exit 6"), "", func(_ *os.File, cmd *exec.Cmd) {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		})
		if code != 128+int(syscall.SIGTERM) {
			t.Errorf("SIGTERM: exit code %d, output %q", code, out)
		}
		out, code = b.inTerminal(t, []string{"attach", "-it", "-c", "stays", "job"}, "", func(ours *os.File, _ *exec.Cmd) { _, _ = ours.WriteString("again\r\x04") })
		if code != 6 || !strings.Contains(out, "again") {
			t.Errorf("after SIGTERM: exit code %d, output %q", code, out)
		}
		args := debug("-i", "--", "/bin/box", "do", "listen", "exit 7")
		cmd := b.command(t, args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(strings.Repeat("a line\n", 100_000))
		text, err := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != 7 || strings.Count(string(text), "a line\n") != 100_000 {
			t.Errorf("text: exit code %d, %d bytes, %v", code, len(text), err)
		}
		if r := b.run(t, "debug", "--image", "localhost/box:1", "job", "-c", "lives", "--", "/bin/box", "stay"); r.code != 0 || r.stdout != "lives\n" {
			t.Errorf("%+v", r)
		}
		b.run(t, "exec", "job", "--", "/bin/box", "write", "/go", "yes")
		if err := run.Wait(); err != nil || !strings.Contains(report.String(), "Succeeded") {
			t.Errorf("the run: %v\n%s", err, report.String())
		}
		if r := b.run(t, "ps", "-o", "json", "job"); strings.Contains(r.stdout, `"running"`) || !strings.Contains(r.stdout, `"lives"`) {
			t.Errorf("after the end of the pod: %s", r.stdout)
		}
	}
	embedded(t, test)
	daemons(t, test, daemon.Current, daemon.Debian)
}
