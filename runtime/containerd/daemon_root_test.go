package containerd_test

import (
	"bytes"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/log"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/internal/testing/daemon"
)

// TestClientLogsNothing: what containerd's client logs, as it does when it pulls an image, is not on
// standard error when another process is the server.
func TestClientLogsNothing(t *testing.T) {
	p := servedDirs(t, daemon.Debian)
	var out bytes.Buffer
	log.L.Logger.SetOutput(&out)
	if err := log.SetLevel("info"); err != nil {
		t.Fatal(err)
	}
	p.openWith(t, nil)
	log.L.Info("host will try HTTPS first")
	if out.Len() > 0 {
		t.Errorf("%s", &out)
	}
}

func TestDaemon(t *testing.T) {
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			p := servedDirs(t, version)
			p.logs = t.TempDir()
			e := p.openWithBox(t)

			// A life.
			events, err := e.Events(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c := p.box(t, "a", "exit", "7", "said", "so")
			if err := e.Start(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			awaitEvent(t, events, engine.Event{Type: engine.EventExited, ContainerID: "a", PodUID: "pod-a"})
			if got, _ := find(t, e, "a"); got.Exit.ExitCode != 7 || got.State != engine.StateExited {
				t.Errorf("%+v", got)
			}
			if log, err := os.ReadFile(c.LogPath); err != nil || !strings.Contains(string(log), " stdout F said so\n") {
				t.Errorf("log %q, %v", log, err)
			}

			// Stop, exec, failure.
			startUp(t, e, p.box(t, "b", "trap"))
			if got, err := e.Exec(t.Context(), "b", []string{"box", "exit", "3", "hello"}); err != nil || got.ExitCode != 3 || string(got.Output) != "hello\n" {
				t.Errorf("%+v %v", got, err)
			}
			if err := e.Stop(t.Context(), "b", syscall.SIGTERM, time.Minute); err != nil {
				t.Fatal(err)
			}
			if got, _ := find(t, e, "b"); got.Exit.ExitCode != 0 || got.State != engine.StateExited {
				t.Errorf("%+v", got)
			}
			bad := p.box(t, "c", "sleep")
			bad.Spec.Process.Args = []string{"nope"}
			if err := e.Start(t.Context(), bad); err == nil || err.Error() != `starting container "main": exec: "nope": executable file not found in $PATH` {
				t.Errorf("error %v", err)
			}

			// An exit that nobody watches.
			if err := e.Start(t.Context(), p.box(t, "d", "do", "sleep 300ms", "exit 5")); err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			awaitEnd(t, "sleep 300ms\x00exit 5")
			for range 2 {
				e = p.open(t, t.Context())
				for id, code := range map[string]int32{"a": 7, "b": 0, "d": 5} {
					if got := eventually(t, e, id, engine.StateExited); got.Exit.ExitCode != code || got.Exit.StartedAt.IsZero() {
						t.Errorf("%+v", got)
					}
				}
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
			removeAll(t, p)
			if s := shimsOf(t, p.address); s != "" {
				t.Errorf("left: %s", s)
			}
		})
	}
}
