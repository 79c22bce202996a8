package e2e

import (
	"slices"
	"syscall"
	"testing"
)

// sleeper runs a pod in which commands can run.
func (b *box) sleeper(t *testing.T) {
	t.Helper()
	b.up(t, directory(t, pod("web", "Always", "sleep")), 0)
}

// TestExecKilled: what a killed "exec" has started in a container is killed as well.
func TestExecKilled(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		b.sleeper(t)
		before := b.containers(t)
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			cmd := b.command(t, "exec", "web", "--", "/bin/box", "do", "beside stay 1h", "stay 2h")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			runs := func() bool { return len(b.containers(t)) == len(before)+2 }
			if !eventually(runs) {
				t.Fatalf("the command does not run: %q", b.containers(t))
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); signal == syscall.SIGTERM && code != 128+int(signal) {
				t.Errorf("%s: exit code %d", signal, code)
			}
			if !eventually(func() bool { return slices.Equal(b.containers(t), before) }) {
				t.Errorf("%s: left %q, before %q", signal, b.containers(t), before)
			}
		}
	}
	embedded(t, test)
}
