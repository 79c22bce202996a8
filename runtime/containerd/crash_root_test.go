package containerd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/containerd"
)

// TestKilledWhileStarting kills a process at many moments of its starts, and wants the
// next one to clean up and to be able to start the same containers.
func TestKilledWhileStarting(t *testing.T) {
	p := newTestDirs(t)
	if err := p.openWithBox(t).Close(); err != nil {
		t.Fatal(err)
	}
	for round := range 12 {
		killStarts(t, p, time.Duration(20+round*15)*time.Millisecond)
		e := p.open(t, t.Context())
		all := list(t, e)
		if round%2 == 0 {
			// What does not run can be started, though perhaps not at the first try: calls of the
			// killed process may still be at work.
			for i := range manyStarts {
				id := fmt.Sprintf("many-%d", i)
				if c, ok := find(t, e, id); ok && c.State == "Running" {
					continue
				}
				if err := startAtLast(t, e, p.box(t, id, "sleep")); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}
			all = list(t, e)
		}
		for _, c := range all {
			if err := e.Remove(t.Context(), c.ID); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if left := leftovers(t, p); left != "" {
			t.Fatalf("round %d: left:\n%s", round, left)
		}
	}
}

// manyStarts is how many containers killStarts starts.
const manyStarts = 4

// killStarts has another process start containers, and kills it after a while.
func killStarts(t *testing.T, p testDirs, after time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "sleep")
	cmd.Env = append(os.Environ(), helperEnv+"="+p.dir, helperEnv+"_ADDRESS="+p.address, helperEnv+"_MANY="+fmt.Sprint(manyStarts))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// startAtLast starts the container as the runtime does: again after an error that may pass.
func startAtLast(t *testing.T, e *containerd.Engine, c engine.ContainerConfig) error {
	t.Helper()
	for tries := 0; ; tries++ {
		err := e.Start(t.Context(), c)
		if err == nil || tries == 10 || failure.IsPermanent(err) {
			return err
		}
		t.Logf("try %d: %v", tries, err)
		time.Sleep(time.Second)
	}
}

// TestKilledWhileStartingOnDaemon: the same on daemons, which live on and clean up in their own
// way.
func TestKilledWhileStartingOnDaemon(t *testing.T) {
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			p := servedDirs(t, version)
			p.logs = t.TempDir()
			if err := p.openWithBox(t).Close(); err != nil {
				t.Fatal(err)
			}
			for round := range 12 {
				killStarts(t, p, time.Duration(60+round*40)*time.Millisecond)
				e := p.open(t, t.Context())
				for i := range manyStarts {
					id := fmt.Sprintf("many-%d", i)
					if c, ok := find(t, e, id); ok && c.State == engine.StateRunning {
						continue
					}
					if err := startAtLast(t, e, p.box(t, id, "sleep")); err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				}
				for i := range manyStarts {
					if err := e.Remove(t.Context(), fmt.Sprintf("many-%d", i)); err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				}
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
				if left := shimsOf(t, p.address); left != "" {
					t.Fatalf("round %d: left: %s", round, left)
				}
				if left := bundlesOf(t, p); len(left) > 0 {
					t.Fatalf("round %d: left: %s", round, left)
				}
			}
		})
	}
}

// bundlesOf returns the bundles that a daemon leaves. It may remove one after the call that deletes
// the task.
func bundlesOf(t *testing.T, p testDirs) (left []string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var err error
		if left, err = filepath.Glob(filepath.Join(p.bundles(), "*")); err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
	}
	return left
}

// TestStaleBundleOnDaemon: a bundle that a daemon has left of a task that it does not know is removed,
// by the start of a container with its ID, with the container, or when all is removed. One that is so
// young that it may be in use is awaited.
func TestStaleBundleOnDaemon(t *testing.T) {
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			p := servedDirs(t, version)
			p.logs = t.TempDir()
			e := p.openWithBox(t)
			note := func(id string) string { return filepath.Join(p.dir, "root", "containers", id+".json.bundle") }
			leave := func(id string, age time.Duration) {
				t.Helper()
				bundle := filepath.Join(p.bundles(), id)
				if err := os.MkdirAll(filepath.Join(bundle, "rootfs", "dev"), 0o711); err != nil {
					t.Fatal(err)
				}
				then := time.Now().Add(-age)
				if err := os.Chtimes(bundle, then, then); err != nil {
					t.Fatal(err)
				}
			}
			leave("a", 8*time.Second)
			if err := e.Start(t.Context(), p.box(t, "a", "exit", "3")); err != nil {
				t.Fatal(err)
			}
			if c := eventually(t, e, "a", engine.StateExited); c.Exit.ExitCode != 3 {
				t.Errorf("%+v", c)
			}
			if bundle, err := os.Readlink(note("a")); err != nil || bundle != filepath.Join(p.bundles(), "a") {
				t.Errorf("its bundle is noted as %q, %v", bundle, err)
			}
			for _, id := range []string{"removed", "forgotten"} {
				leave(id, time.Minute)
				if err := os.Symlink(filepath.Join(p.bundles(), id), note(id)); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range []string{"a", "removed"} {
				if err := e.Remove(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
			if err := e.RemoveLeft(t.Context()); err != nil {
				t.Error(err)
			}
			if left := bundlesOf(t, p); len(left) > 0 {
				t.Errorf("left: %s", left)
			}
			if left, err := filepath.Glob(note("*")); err != nil || len(left) > 0 {
				t.Errorf("left: %s, %v", left, err)
			}
		})
	}
}

// TestHalfCreatedOnDaemon: what an OCI runtime that was killed while it created a container has
// left does not prevent the container for ever.
func TestHalfCreatedOnDaemon(t *testing.T) {
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			p := servedDirs(t, version)
			p.logs = t.TempDir()
			e := p.openWithBox(t)
			c := p.box(t, "half-created", "exit", "3")
			left := filepath.Join("/run/containerd/runc", p.namespace(), c.ID)
			if err := os.MkdirAll(left, 0o711); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(left) })
			if err := os.WriteFile(filepath.Join(left, "runc.x"), nil, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := e.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "already exists") {
				t.Fatalf("first try: %v", err)
			}
			if err := e.Start(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if c := eventually(t, e, c.ID, engine.StateExited); c.Exit.ExitCode != 3 {
				t.Errorf("%+v", c)
			}
			if err := e.Remove(t.Context(), c.ID); err != nil {
				t.Error(err)
			}
		})
	}
}
