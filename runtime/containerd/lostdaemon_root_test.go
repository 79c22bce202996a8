package containerd_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
)

// TestExitWhileTheDaemonIsDead: a container that ends while its daemon is dead has the exit code
// that it had, for the process that watches and for later ones.
func TestExitWhileTheDaemonIsDead(t *testing.T) {
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		for _, pause := range []time.Duration{0, 3 * time.Second} {
			t.Run(string(version)+" "+pause.String(), func(t *testing.T) {
				p := smallDisk(t, "100m", "")
				bin := daemon.Programs(t, version)
				d, err := daemon.Start(t.Context(), bin, p.dir)
				if err != nil {
					t.Fatal(err)
				}
				p.address = d.Socket
				t.Cleanup(func() { _ = d.Stop() })
				e := p.openWithBox(t)
				events, err := e.Events(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Start(t.Context(), p.box(t, "a", "do", "sleep 500ms", "exit 5")); err != nil {
					t.Fatal(err)
				}
				if err := d.Kill(); err != nil {
					t.Fatal(err)
				}
				awaitEnd(t, "sleep 500ms\x00exit 5")
				time.Sleep(pause)
				if d, err = daemon.Start(t.Context(), bin, p.dir); err != nil {
					t.Fatal(err)
				}
				awaitEvent(t, events, engine.Event{Type: engine.EventExited, ContainerID: "a", PodUID: "pod-a"})
				first, _ := find(t, e, "a")
				other := p.open(t, context.WithoutCancel(t.Context()))
				later, _ := find(t, other, "a")
				if first.State != engine.StateExited || !reflect.DeepEqual(first.Exit, later.Exit) || first.Exit.ExitCode != 5 {
					t.Errorf("it saw %+v, a later process %+v", first, later)
				}
				if err := other.Close(); err != nil {
					t.Error(err)
				}
				if err := e.Remove(t.Context(), "a"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestDaemonThatHasEnded: a process that goes on without its daemon says so, once, and that it is back.
func TestDaemonThatHasEnded(t *testing.T) {
	p := newTestDirs(t)
	bin := daemon.Programs(t, daemon.Current)
	d, err := daemon.Start(t.Context(), bin, p.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop() })
	p.address = d.Socket
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	o := p.options()
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	e, err := containerd.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	awaitLog := func(text string) string {
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if all, err := os.ReadFile(log.Name()); err != nil || strings.Contains(string(all), text) {
				return string(all)
			}
		}
		t.Fatalf("no %q in the log", text)
		return ""
	}
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	const gone = "lost the connection to containerd"
	awaitLog(gone)
	time.Sleep(time.Second) // it tries again
	if d, err = daemon.Start(t.Context(), bin, p.dir); err != nil {
		t.Fatal(err)
	}
	if all := awaitLog("containerd responds again"); strings.Count(all, gone) != 1 {
		t.Errorf("the log:\n%s", all)
	}
	if err := errors.Join(e.Close(), log.Close()); err != nil {
		t.Error(err)
	}
}

// TestShimBusy: a container whose shim does not answer in time is not lost: containerd leaves it
// out when it lists tasks, although its process runs, or ends as it likes.
func TestShimBusy(t *testing.T) {
	for _, version := range []daemon.Version{"", daemon.Current, daemon.Debian} {
		t.Run("engine "+string(version), func(t *testing.T) {
			p := newTestDirs(t)
			address := p.dir + "/state"
			if version != "" {
				p = servedDirs(t, version)
				p.logs, address = t.TempDir(), p.address
			}
			e := p.openWithBox(t)
			startUp(t, e, p.box(t, "a", "trap"))
			pid := shimAt(t, address)
			halt(t, pid)
			other := p.open(t, context.WithoutCancel(t.Context()))
			for range 2 {
				if c, ok := find(t, other, "a"); !ok || c.State != engine.StateRunning {
					t.Errorf("%+v", c)
				}
				time.Sleep(1500 * time.Millisecond) // it asks again
			}
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err := other.Stop(t.Context(), "a", syscall.SIGTERM, time.Minute); err != nil {
				t.Error(err)
			}
			if c := eventually(t, other, "a", engine.StateExited); c.Exit.ExitCode != 0 {
				t.Errorf("%+v", c)
			}
			if err := errors.Join(other.Remove(t.Context(), "a"), other.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStoppedDaemon: a call to a daemon that a signal has stopped ends, and names its socket.
func TestStoppedDaemon(t *testing.T) {
	t.Parallel()
	p := smallDisk(t, "100m", "")
	bin := daemon.Programs(t, daemon.Current)
	d, err := daemon.Start(t.Context(), bin, p.dir)
	if err != nil {
		t.Fatal(err)
	}
	p.address = d.Socket
	t.Cleanup(func() { _ = d.Stop() })
	e := p.openWithBox(t)
	startUp(t, e, p.box(t, "a", "trap"))
	halt(t, d.Pid)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	want := "stopping container \"a\": containerd at \"" + d.Socket + "\" does not respond"
	if err := e.Stop(ctx, "a", syscall.SIGTERM, time.Minute); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := syscall.Kill(d.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Stop(ctx, "a", syscall.SIGTERM, time.Minute), e.Remove(ctx, "a")); err != nil {
		t.Errorf("when it has been resumed: %v", err)
	}
}
