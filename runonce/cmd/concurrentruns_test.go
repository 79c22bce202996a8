package cmd_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runtime/record"
)

// TestRecreateOfOtherRun: a run that replaces a pod takes it from the one that goes on, as with a changed pod.
func TestRecreateOfOtherRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		job := manifest(t, "job", "Never", "[do, sleep 60s, exit 0]")
		first := make(chan invocation, 1)
		go func() { first <- invoke(t, m, "run", job, "--node", nodeFile(), "--until", "completed") }()
		time.Sleep(10 * time.Second)
		begun := time.Now()
		second := invoke(t, m, "run", job, "--node", nodeFile(), "--until", "completed", "--recreate")
		if took := time.Since(begun); second.code != 0 || took < time.Minute || !strings.Contains(second.stdout, "job  Succeeded") {
			t.Errorf("after %s: %+v", took, second)
		}
		if got := <-first; got.code != 1 || !strings.Contains(got.stdout, "was stopped by process") {
			t.Errorf("the first run: %+v", got)
		}
	})
}

// TestConcurrentRuns: a run waits until the one before it has stopped its pods, but not beyond
// its own timeout.
func TestConcurrentRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		before := record.Open(m.root, m.root).NewRun()
		if err := before.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		web := manifest(t, "web", "Always", "[sleep]")
		got := invoke(t, m, "run", web, "--node", nodeFile(), "--timeout", "5s")
		if got.code != 1 || !strings.Contains(got.stdout, "TimedOut") || !strings.Contains(got.stdout, "\n  waiting for the turn to plan") {
			t.Errorf("beyond its timeout: %+v", got)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cmd.Interrupt{Signal: syscall.SIGTERM}) })
		var out bytes.Buffer
		world := cmd.IO{Stdout: &out, Stderr: io.Discard, Stdin: strings.NewReader(""), Getenv: func(string) string { return "" }, Machine: bareMachine(), Open: m.open}
		code := cmd.Main(ctx, []string{"runonce", "run", web, "--node", nodeFile(), "-o", "json", "--root", m.root, "--state", filepath.Join(m.root, "state")}, world)
		if code != 143 || !strings.Contains(out.String(), `"Canceled"`) {
			t.Errorf("interrupted: exit code %d\n%s", code, &out)
		}
		left := make(chan error, 1)
		time.AfterFunc(10*time.Second, func() { left <- before.Leave() })
		if got := invoke(t, m, "run", web, "--node", nodeFile(), "--timeout", "20s"); got.code != 0 {
			t.Errorf("within its timeout: %+v", got)
		}
		if err := <-left; err != nil {
			t.Error(err)
		}
		if got := invoke(t, m, "plan", web, "--node", nodeFile()); got.code != 0 {
			t.Errorf("a plan: %+v", got)
		}
		if err := before.Close(); err != nil {
			t.Error(err)
		}
	})
}
