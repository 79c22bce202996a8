package containerd_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/engine"
)

func TestStartReportsTheExitAndKeepsTheLog(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	c := p.box(t, "a", "exit", "7", "said", "so")
	if err := e.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	got := eventually(t, e, "a", engine.StateExited)
	if got.Exit.ExitCode != 7 || got.Exit.OOMKilled || got.Exit.FinishedAt.Before(got.Exit.StartedAt) {
		t.Errorf("exit %+v", got.Exit)
	}
	log, err := os.ReadFile(c.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), " stdout F said so\n") {
		t.Errorf("log %q", log)
	}
}

func TestStopSendsTheSignalAndKeepsTheRecord(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	for _, tc := range []struct {
		id, applet string
		grace      time.Duration
		want       int32
	}{
		{"graceful", "trap", time.Minute, 0},
		{"stubborn", "stay", 200 * time.Millisecond, 137},
		{"at-once", "trap", 0, 137},
	} {
		t.Run(tc.id, func(t *testing.T) {
			startUp(t, e, p.box(t, tc.id, tc.applet))
			if err := e.Stop(t.Context(), tc.id, syscall.SIGTERM, tc.grace); err != nil {
				t.Fatal(err)
			}
			if got, _ := find(t, e, tc.id); got.State != engine.StateExited || got.Exit.ExitCode != tc.want {
				t.Errorf("%s %+v", got.State, got.Exit)
			}
			if err := e.Stop(t.Context(), tc.id, syscall.SIGTERM, tc.grace); err != nil {
				t.Errorf("stopping again: %v", err)
			}
		})
	}
}
