package e2e

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestNobodyReads: a run and a down whose progress nobody reads go on to their end.
func TestNobodyReads(t *testing.T) {
	b := newBox(t, "")
	dir := directory(t, pod("job", "Never", "exit", "0"), pod("web", "Always", "sleep"))
	for _, tc := range []struct{ command, stdout string }{{"run", `"Running"`}, {"down", "default/web removed"}} {
		args := []string{dir}
		if tc.command == "run" {
			args = b.upArgs(t, dir)
		}
		cmd := b.command(t, tc.command, args...)
		var stdout bytes.Buffer
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = reader.Close()
		cmd.Stdout, cmd.Stderr = &stdout, writer
		err = cmd.Run()
		_ = writer.Close()
		if err != nil || !strings.Contains(stdout.String(), tc.stdout) {
			t.Errorf("%s: %v\n%s", tc.command, err, &stdout)
		}
	}
	b.awaitPods(t, 0)
}

// TestQuit: the exit code of a program that crashes does not say that nothing was started.
func TestQuit(t *testing.T) {
	b := newBox(t, "")
	dir := directory(t, pod("job", "Never", "sleep"))
	cmd := b.command(t, "run", b.upArgs(t, dir, "--until", "completed")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.awaitProcess(t, "sleep")
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGABRT {
		t.Errorf("it ended with %s", cmd.ProcessState)
	}
}
