package cmd_test

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// TestBlockedInput: one signal ends the real program while it waits for its input, unless it is
// one that nohup has made it ignore. It does not run in parallel, like TestCompletionInShells.
func TestBlockedInput(t *testing.T) {
	catchHangups(t)
	for _, c := range []struct {
		name    string
		shell   string
		signals []syscall.Signal
		want    int
	}{
		{"SIGTERM", `exec "$@"`, []syscall.Signal{syscall.SIGTERM}, 143},
		{"SIGHUP", `exec "$@"`, []syscall.Signal{syscall.SIGHUP}, 129},
		{"SIGHUP under nohup", `trap "" HUP; exec "$@"`, []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM}, 143},
	} {
		t.Run(c.name, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			p := exec.CommandContext(t.Context(), "sh", "-c", c.shell, "sh", self, "validate", "-")
			p.Env = append(os.Environ(), asProgram+"=1")
			var errs bytes.Buffer
			p.Stderr = &errs
			in, err := p.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			// More than a pipe holds, so that the program has begun to read.
			if _, err := in.Write(bytes.Repeat([]byte("# wait\n"), 100_000)); err != nil {
				t.Fatal(err)
			}
			for _, sig := range c.signals {
				if err := p.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
			_ = p.Wait() // an error, which the code says
			if got := p.ProcessState.ExitCode(); got != c.want || !strings.HasPrefix(errs.String(), "runonce: interrupted") {
				t.Errorf("exit code %d, want %d, %q", got, c.want, &errs)
			}
		})
	}
}

// catchHangups makes SIGHUP end the processes that the test starts, also if the test runs under
// nohup: a signal that this process gets is not ignored by its children.
func catchHangups(t *testing.T) {
	t.Helper()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
}
