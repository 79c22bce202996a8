package cmd_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runonce/cmd"
)

// TestFollowEvents: -f shows what happens in other processes, until it is interrupted.
func TestFollowEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		web := manifest(t, "web", "Always", `[sleep]`)
		invoke(t, m, "run", web, "--node", nodeFile())
		ctx, interrupt := context.WithCancelCause(t.Context())
		var out lockedBuffer
		seen := 0
		ended := make(chan int, 1)
		go func() {
			args := []string{"runonce", "events", "web", "-f", "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log")}
			ended <- cmd.Main(ctx, args, cmd.IO{
				Open: m.open, Machine: bareMachine(), Getenv: func(string) string { return "" }, Stdout: &out, Stderr: &bytes.Buffer{},
			})
		}()
		rows := func(want ...string) {
			t.Helper()
			time.Sleep(time.Second)
			text := out.String()
			lines := strings.Split(strings.TrimSuffix(text[seen:], "\n"), "\n")
			seen = len(text)
			for i, line := range lines {
				if i >= len(want) || len(lines) != len(want) || !strings.Contains(line, want[i]) {
					t.Errorf("%q, want %q", lines, want)
					return
				}
			}
		}
		rows("LAST SEEN", " Scheduled ", " Pulled ", " Created ", " Started ")
		invoke(t, m, "run", manifest(t, "other", "Always", `[sleep]`), "--node", nodeFile())
		rows("")
		invoke(t, m, "down", "web")
		rows(" Killing ")
		invoke(t, m, "down", "--all", "--logs")
		rows("")
		invoke(t, m, "run", web, "--node", nodeFile())
		rows(" Scheduled ", " Pulled ", " Created ", " Started ")
		interrupt(cmd.Interrupt{Signal: syscall.SIGINT})
		if code := <-ended; code != 130 {
			t.Errorf("exit code %d", code)
		}
	})
}
