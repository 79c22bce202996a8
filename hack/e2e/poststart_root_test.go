package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hooked has a hook that ends when the file go is there, with success unless fail is, too.
const hooked = `apiVersion: v1
kind: Pod
metadata: {name: hooked}
spec:
  hostNetwork: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: localhost/box:1
    args: [do, append /notes/starts start, stay]
    lifecycle: {postStart: {exec: {command: [/bin/box, do, append /notes/hooks hook, await /notes/go, gone /notes/fail]}}}
    volumeMounts: [{name: notes, mountPath: /notes}]
  volumes: [{name: notes, hostPath: {path: "%s"}}]
`

// TestPostStartOfEndedProcess: whatever ends the process during a postStart hook leaves the container
// alone, and the next run runs the hook again and goes by its result.
func TestPostStartOfEndedProcess(t *testing.T) {
	for _, tt := range []struct {
		name     string
		command  string
		signal   syscall.Signal
		fails    bool // the hook, when it runs again
		code     int  // of the process that is ended; -1 by the signal
		next     int  // exit code
		outcomes []string
	}{
		{"killed", "run", syscall.SIGKILL, false, -1, 0, []string{"hooked=Running"}},
		{"killed before it fails", "run", syscall.SIGKILL, true, -1, 1, []string{"hooked=Failed"}},
		{"terminated", "run", syscall.SIGTERM, false, 143, 0, []string{"hooked=Running"}},
		{"interrupted before it fails", "run", syscall.SIGINT, true, 130, 1, []string{"hooked=Failed"}},
		{"watch terminated", "watch", syscall.SIGTERM, false, 143, 0, []string{"hooked=Running"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBox(t, "")
			notes := t.TempDir()
			dir := directory(t, fmt.Sprintf(hooked, notes))
			cmd := b.command(t, tt.command, b.upArgs(t, dir)...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if !eventually(func() bool { return lines(t, notes, "starts") == 1 && lines(t, notes, "hooks") == 1 }) {
				t.Error("the hook does not run")
			}
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if r := finished(t, cmd, stdout.String(), stderr.String()); r.code != tt.code {
				t.Errorf("exit code %d, want %d\n%s\n%s", r.code, tt.code, r.stdout, r.stderr)
			}
			ps := b.run(t, "ps", "-o", "json")
			if pods := ps.report.Pods; len(pods) != 1 || pods[0].Containers[0].State != "Waiting" || pods[0].Containers[0].ExitCode != nil {
				t.Errorf("ps: %s\nwant a container that waits and has not ended", ps.stdout)
			}
			write := []string{"go"}
			if tt.fails {
				write = []string{"fail", "go"}
			}
			for _, name := range write {
				if err := os.WriteFile(filepath.Join(notes, name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := b.up(t, dir, tt.next)
			if diff := cmp.Diff(tt.outcomes, got.report.outcomes()); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			if starts, hooks := lines(t, notes, "starts"), lines(t, notes, "hooks"); starts != 1 || hooks != 2 {
				t.Errorf("%d starts and %d hooks, want 1 and 2", starts, hooks)
			}
		})
	}
}

// lines is how many lines a file has; one that is not there has none.
func lines(t *testing.T, dir, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}
